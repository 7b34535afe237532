package testutil

import (
	"io"
	"net/http"
	"testing"
)

// Body reads the body of a response and closes it.
func Body(t testing.TB, response *http.Response) string {
	t.Helper()
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
