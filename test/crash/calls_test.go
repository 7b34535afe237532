package crash

import "golang.org/x/sys/unix"

// harmless are the system calls that change nothing outside of the process, or only for as long as it lives. Every
// other one is an effect, known or not.
var harmless = append([]int{
	// memory, threads, time
	unix.SYS_FUTEX, unix.SYS_MADVISE, unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MPROTECT, unix.SYS_MREMAP, unix.SYS_MINCORE,
	unix.SYS_MLOCK, unix.SYS_MUNLOCK, unix.SYS_BRK, unix.SYS_MEMBARRIER, unix.SYS_CLONE, unix.SYS_CLONE3, unix.SYS_EXECVE,
	unix.SYS_EXIT, unix.SYS_EXIT_GROUP, unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK,
	unix.SYS_TGKILL, unix.SYS_SET_TID_ADDRESS, unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_PRCTL, unix.SYS_PRLIMIT64,
	unix.SYS_RESTART_SYSCALL, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_GETTIMEOFDAY,
	unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_SCHED_SETAFFINITY, unix.SYS_TIMER_CREATE, unix.SYS_TIMER_SETTIME,
	unix.SYS_TIMER_DELETE, unix.SYS_SETITIMER, unix.SYS_WAITID, unix.SYS_WAIT4,
	// who and where
	unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_GETPPID, unix.SYS_GETUID, unix.SYS_GETEUID, unix.SYS_GETGID, unix.SYS_GETEGID,
	unix.SYS_UNAME, unix.SYS_SYSINFO, unix.SYS_GETRANDOM, unix.SYS_GETCWD, unix.SYS_CAPGET, unix.SYS_GETRUSAGE,
	unix.SYS_SETNS, unix.SYS_UNSHARE, unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_SEND_SIGNAL,
	// reading
	unix.SYS_READ, unix.SYS_PREAD64, unix.SYS_READV, unix.SYS_LSEEK, unix.SYS_CLOSE, unix.SYS_FSTAT, unix.SYS_STATX, unix.SYS_STATFS,
	unix.SYS_FSTATFS, unix.SYS_GETDENTS64, unix.SYS_READLINKAT, unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2, unix.SYS_FCNTL, unix.SYS_DUP,
	unix.SYS_DUP3, unix.SYS_EVENTFD2, unix.SYS_PIPE2, unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_PPOLL,
	unix.SYS_PSELECT6, unix.SYS_INOTIFY_INIT1, unix.SYS_INOTIFY_ADD_WATCH, unix.SYS_PERF_EVENT_OPEN,
	// sockets
	unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_CONNECT, unix.SYS_LISTEN, unix.SYS_ACCEPT, unix.SYS_ACCEPT4, unix.SYS_GETSOCKNAME,
	unix.SYS_GETPEERNAME, unix.SYS_GETSOCKOPT, unix.SYS_SETSOCKOPT, unix.SYS_RECVFROM, unix.SYS_RECVMSG, unix.SYS_RECVMMSG, unix.SYS_SHUTDOWN,
}, harmlessHere...)

// named are the effects that have a name in a report. Of some it is known where their path is.
var named = map[int]call{
	unix.SYS_WRITE: {name: "write", fd: true}, unix.SYS_WRITEV: {name: "writev", fd: true},
	unix.SYS_PWRITE64: {name: "pwrite64", fd: true}, unix.SYS_PWRITEV: {name: "pwritev", fd: true},
	unix.SYS_SENDTO: {name: "sendto", fd: true}, unix.SYS_SENDMSG: {name: "sendmsg", fd: true}, unix.SYS_SENDMMSG: {name: "sendmmsg", fd: true},
	unix.SYS_SENDFILE: {name: "sendfile", fd: true}, unix.SYS_BIND: {name: "bind", fd: true}, unix.SYS_IOCTL: {name: "ioctl", fd: true},
	unix.SYS_FSYNC: {name: "fsync", fd: true}, unix.SYS_FDATASYNC: {name: "fdatasync", fd: true}, unix.SYS_FLOCK: {name: "flock", fd: true},
	unix.SYS_FTRUNCATE: {name: "ftruncate", fd: true}, unix.SYS_FALLOCATE: {name: "fallocate", fd: true},
	unix.SYS_FCHMOD: {name: "fchmod", fd: true}, unix.SYS_FCHOWN: {name: "fchown", fd: true},
	unix.SYS_OPENAT: {name: "create", path: 1}, unix.SYS_MKDIRAT: {name: "mkdir", path: 1}, unix.SYS_UNLINKAT: {name: "unlink", path: 1},
	unix.SYS_RENAMEAT: {name: "rename", path: 3}, unix.SYS_RENAMEAT2: {name: "rename", path: 3}, unix.SYS_LINKAT: {name: "link", path: 3},
	unix.SYS_SYMLINKAT: {name: "symlink", path: 2}, unix.SYS_FCHMODAT: {name: "chmod", path: 1}, unix.SYS_FCHOWNAT: {name: "chown", path: 1},
	unix.SYS_BPF: {name: "bpf"}, unix.SYS_KILL: {name: "kill"}, unix.SYS_MOUNT: {name: "mount"}, unix.SYS_UMOUNT2: {name: "umount"},
}

// call says how to read the arguments of a system call.
type call struct {
	name string
	fd   bool // the first argument is a file
	path int  // this argument is a path; 0 for none
}
