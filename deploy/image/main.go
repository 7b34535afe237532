// Command image packs Porin's programs into an OCI archive: an index with an image for each platform, from scratch, of
// one layer each. The same programs give the same archive.
//
//	image [flags] DIR PLATFORM...
//
// The programs of a platform are in its folder below DIR, such as DIR/linux/amd64/porin-agent.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// programs are the files of the image.
var programs = []string{"porin", "porin-agent", "porin-cni", "porin-proxy"}

// searchPath is for commands in the container, such as porin, and for IPAM plugins that the agent starts in the root of
// its node.
const searchPath = "PATH=/:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// epoch is the time of every file, image and archive entry.
var epoch = time.Unix(0, 0).UTC()

// options say what to pack, and its name and labels.
type options struct {
	out, name, version, revision string
	dir                          string
	platforms                    []string
}

func main() {
	var o options
	flag.StringVar(&o.out, "out", "porin-image.tar", "the archive")
	flag.StringVar(&o.name, "name", "", "name of the image in the archive, such as porin.dev/porin:0.1.0")
	flag.StringVar(&o.version, "version", "", "version of the programs, for a label")
	flag.StringVar(&o.revision, "revision", "", "commit of the programs, for a label")
	flag.Parse()
	o.dir, o.platforms = flag.Arg(0), flag.Args()[min(1, flag.NArg()):]
	digest, err := o.pack()
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
	fmt.Println(o.name + "@" + digest.String())
}

// pack writes the archive and returns the digest of the index. The file appears when it is whole.
func (o *options) pack() (digest v1.Hash, err error) {
	if len(o.platforms) == 0 {
		return digest, errors.New("name the folder of the programs, and platforms")
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, name := range o.platforms {
		platform, err := v1.ParsePlatform(name)
		if err != nil {
			return digest, err
		}
		image, err := o.image(platform)
		if err != nil {
			return digest, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platform}})
	}
	// An interrupted run leaves these two, and the next one replaces them.
	unfinished, folder := o.out+".new", o.out+".layout"
	defer func() { err = errors.Join(err, os.RemoveAll(unfinished), os.RemoveAll(folder)) }()
	if err := os.RemoveAll(folder); err != nil {
		return digest, err
	}
	file, err := os.Create(unfinished)
	if err != nil {
		return digest, err
	}
	if err := errors.Join(o.writeArchive(file, folder, index), file.Sync(), file.Close()); err != nil {
		return digest, err
	}
	if err := os.Rename(unfinished, o.out); err != nil {
		return digest, err
	}
	return index.Digest()
}

func (o *options) image(platform *v1.Platform) (v1.Image, error) {
	layer, err := o.layer(platform)
	if err != nil {
		return nil, err
	}
	image, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		OS: platform.OS, Architecture: platform.Architecture, Variant: platform.Variant,
		Created: v1.Time{Time: epoch},
		RootFS:  v1.RootFS{Type: "layers"},
		Config: v1.Config{
			Entrypoint: []string{"/porin-agent"},
			Env:        []string{searchPath},
			Labels: map[string]string{
				"org.opencontainers.image.title":    "Porin",
				"org.opencontainers.image.version":  o.version,
				"org.opencontainers.image.revision": o.revision,
				"org.opencontainers.image.source":   "https://porin.dev/porin",
				"org.opencontainers.image.licenses": "Apache-2.0 AND (GPL-2.0-only OR BSD-2-Clause)", // the latter are bpf/
			},
		},
	})
	if err != nil {
		return nil, err
	}
	image = mutate.ConfigMediaType(mutate.MediaType(image, types.OCIManifestSchema1), types.OCIConfigJSON)
	return mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: epoch}, CreatedBy: "make image"}})
}

// layer has the programs of a platform, and nothing else.
func (o *options) layer(platform *v1.Platform) (v1.Layer, error) {
	var content bytes.Buffer
	w := tar.NewWriter(&content)
	for _, program := range programs {
		data, err := os.ReadFile(filepath.Join(o.dir, platform.OS, platform.Architecture, program))
		if err != nil {
			return nil, err
		}
		if err := addFile(w, program, 0o755, data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer),
		tarball.WithCompressionLevel(gzip.DefaultCompression), tarball.WithCompressedCaching)
}

// writeArchive writes an OCI image layout whose only entry is the index, as a tar file. The folder dir has the layout
// meanwhile.
func (o *options) writeArchive(out io.Writer, dir string, index v1.ImageIndex) error {
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	// containerd reads the image's name from the first annotation, other programs from the second one.
	names := map[string]string{"io.containerd.image.name": o.name, "org.opencontainers.image.ref.name": o.name}
	if err := path.AppendIndex(index, layout.WithAnnotations(names)); err != nil {
		return err
	}
	w := tar.NewWriter(out)
	files := os.DirFS(dir)
	err = fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		return addFile(w, name, 0o644, content)
	})
	return errors.Join(err, w.Close())
}

func addFile(w *tar.Writer, name string, mode int64, content []byte) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content)), ModTime: epoch, Format: tar.FormatUSTAR}
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}
