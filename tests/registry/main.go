// Command registry serves a registry of images on the address in its argument
// and keeps what is pushed in memory: what a release is pushed to and installed
// from by the tests (tests/src/node/registry.rs).
package main

import (
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: registry ADDRESS:PORT")
		os.Exit(2)
	}
	server := http.Server{
		Addr:              os.Args[1],
		Handler:           registry.New(registry.WithReferrersSupport(true)),
		ReadHeaderTimeout: 5 * time.Second,
	}
	fmt.Fprintln(os.Stderr, "registry:", server.ListenAndServe())
	os.Exit(1)
}
