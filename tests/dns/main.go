// Command dns is CoreDNS with the plugins that answer for Services, and none
// else: the DNS server of the tests' node (tests/src/node). A module of its own,
// because it takes other versions than the control plane.
package main

import (
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
)

func main() {
	dnsserver.Directives = []string{"errors", "ready", "kubernetes"}
	coremain.Run()
}
