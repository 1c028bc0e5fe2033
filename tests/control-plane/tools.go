//go:build !planeonly

package main

import (
	"fmt"
	"os"

	"controlplane/inspect"
)

// The programs beside Kubernetes are linked once, into the plane of go.mod: they are the same for each version.
func init() {
	programs["s3"] = runS3
	programs["kubelet"] = runKubelet
	programs["inspect"] = runInspect
	programs["gzip-size"] = runGzipSize
}

func runInspect(args []string) int {
	args = args[1:]
	replaced := len(args) > 0 && args[0] == "--replaced"
	if replaced {
		args = args[1:]
	}
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, "usage: control-plane inspect [--replaced] TARBALL")
		return 2
	}
	if err := inspect.File(args[0], replaced, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "inspect:", err)
		return 1
	}
	return 0
}

// runGzipSize prints how many bytes Go's gzip makes of what it reads, at its
// default level: what a program in Go would have stored.
func runGzipSize([]string) int {
	size, err := inspect.GzipSize(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gzip-size:", err)
		return 1
	}
	fmt.Println(size)
	return 0
}
