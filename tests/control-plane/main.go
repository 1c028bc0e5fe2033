// Command control-plane is the other side of the integration tests: one
// program that holds a real etcd, a real kube-apiserver, a real
// kube-controller-manager, an S3 server and an archive reader that shares no
// code with the product. Every one of them is linked from its published Go
// module, so a test machine needs a Go tool and a module proxy and nothing
// else: no container runtime, no downloaded binaries.
//
// One binary rather than five because the Kubernetes programs share almost all
// of their code: linking them together costs little more than linking one.
//
//	control-plane etcd FLAGS...
//	control-plane kube-apiserver FLAGS...
//	control-plane kube-controller-manager FLAGS...
//	control-plane s3 --listen 127.0.0.1:PORT --dir DIR --access KEY --secret KEY [--tls-cert FILE --tls-key FILE]
//	control-plane kubelet --listen 127.0.0.1:PORT --log FILE
//	control-plane inspect [--replaced] TARBALL
//	control-plane gzip-size <FILE
//	control-plane version
//
// A link named like one of the programs (say kube-apiserver) runs that program.
//
// Other versions of Kubernetes are built from these sources with a module file of the folder kubernetes, and with the
// tag planeonly, which leaves out the programs of tools.go.
//
// Build, in this folder, with GOFLAGS unset:
//
//	go build -trimpath -buildvcs=false -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=v1.34.4 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=34" -o OUT .
//
// The -X settings are needed: a module build knows no Kubernetes version, and
// clients such as kubectl check the one the server reports.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	componentversion "k8s.io/component-base/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"

	// CronJob time zones must not depend on the machine's zone files.
	_ "time/tzdata"
)

// program runs one of the linked programs. args[0] is the program's own name,
// as it would be had the program been started by itself. The result is the
// exit code.
type program func(args []string) int

var programs = map[string]program{
	"etcd":                    runEtcd,
	"kube-apiserver":          runAPIServer,
	"kube-controller-manager": runControllerManager,
	"version":                 runVersion,
}

func main() {
	args := os.Args
	args[0] = filepath.Base(args[0])
	run, found := programs[args[0]]
	if !found && len(args) > 1 {
		args = args[1:]
		run, found = programs[args[0]]
	}
	if !found {
		fmt.Fprintln(os.Stderr, "usage: control-plane etcd|kube-apiserver|kube-controller-manager|s3|kubelet|inspect|gzip-size|version [flags]")
		os.Exit(2)
	}
	// The linked programs read os.Args in places (etcd's gateway, klog's log
	// file name), so they must see the arguments they would see on their own.
	os.Args = args
	os.Exit(run(args))
}

func runEtcd(args []string) int {
	etcdmain.Main(args)
	return 0
}

func runAPIServer(args []string) int {
	return runCommand(apiserver.NewAPIServerCommand(), args)
}

func runControllerManager(args []string) int {
	return runCommand(controllermanager.NewControllerManagerCommand(), args)
}

func runCommand(command *cobra.Command, args []string) int {
	command.SetArgs(args[1:])
	return cli.Run(command)
}

func runVersion([]string) int {
	fmt.Println(componentversion.Get().GitVersion)
	return 0
}
