// Command node is what makes a node of a machine, beside the control plane:
// kubelet, kube-scheduler and kube-proxy, linked from their published Go module
// like the programs of the folder above. A binary of its own, because few tests
// need it.
//
//	node kubelet FLAGS...
//	node kube-scheduler FLAGS...
//	node kube-proxy FLAGS...
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	kubeproxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var programs = map[string]func() *cobra.Command{
	"kubelet":        func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
	"kube-scheduler": func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kube-proxy":     kubeproxy.NewProxyCommand,
}

func main() {
	var command func() *cobra.Command
	if len(os.Args) > 1 {
		command = programs[os.Args[1]]
	}
	if command == nil {
		fmt.Fprintln(os.Stderr, "usage: node kubelet|kube-scheduler|kube-proxy [flags]")
		os.Exit(2)
	}
	// The linked programs read os.Args in places, and see what they would see on
	// their own.
	os.Args = os.Args[1:]
	root := command()
	root.SetArgs(os.Args[1:])
	os.Exit(cli.Run(root))
}
