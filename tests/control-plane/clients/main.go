// Command clients is what people and programs use to talk to an API server:
// kubectl as it is published, and a program that creates an object the way any
// client-go program does.
//
//	clients kubectl FLAGS...
//	clients client-go-create --kubeconfig FILE --file FILE --resource PLURAL [--timeout 1s] [--dry-run]
//
// It is not part of control-plane: kubectl's templates call methods by name, so
// the linker has to keep every method of everything that is linked with it, and
// each etcd and API server would grow by some 80 MB of memory.
package main

import (
	"fmt"
	"os"
)

func main() {
	programs := map[string]func(args []string) int{
		"kubectl":          runKubectl,
		"client-go-create": runClientGoCreate,
	}
	if len(os.Args) > 1 {
		if run, found := programs[os.Args[1]]; found {
			// kubectl reads os.Args in places.
			os.Args = os.Args[1:]
			os.Exit(run(os.Args))
		}
	}
	fmt.Fprintln(os.Stderr, "usage: clients kubectl|client-go-create [flags]")
	os.Exit(2)
}
