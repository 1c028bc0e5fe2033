// Command csi is a CSI driver for the tests' node (tests/src/node): a volume is
// a folder, or a file that pods see as a block device; a snapshot is a copy of
// it. It needs no sidecar on the node: it tells kubelet itself where it listens.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const version = "1.0.0"

func main() {
	driver := &driver{}
	flag.StringVar(&driver.name, "name", "folders.example.com", "name of the driver")
	flag.StringVar(&driver.node, "node", "", "name of the node")
	flag.StringVar(&driver.endpoint, "endpoint", "", "socket to listen on for calls of CSI")
	flag.StringVar(&driver.storage.root, "root", "", "folder for volumes and snapshots")
	kubelet := flag.String("registration", "", "socket to listen on for kubelet, in its plugins_registry")
	flag.Parse()
	if err := driver.run(*kubelet); err != nil {
		fmt.Fprintln(os.Stderr, "csi:", err)
		os.Exit(1)
	}
}

type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer

	name, node, endpoint string
	storage              storage
	devices              devices
}

func (d *driver) run(kubelet string) error {
	if err := d.storage.prepare(); err != nil {
		return err
	}
	calls := grpc.NewServer(grpc.UnaryInterceptor(logFailures))
	csi.RegisterIdentityServer(calls, d)
	csi.RegisterControllerServer(calls, d)
	csi.RegisterNodeServer(calls, d)
	finder := grpc.NewServer()
	registration.RegisterRegistrationServer(finder, &registrar{driver: d})

	ended := make(chan error, 2)
	// Kubelet calls the driver as soon as it has found it, so this comes last.
	for _, server := range []struct {
		grpc   *grpc.Server
		socket string
	}{{calls, d.endpoint}, {finder, kubelet}} {
		listener, err := listen(server.socket)
		if err != nil {
			return err
		}
		go func() { ended <- server.grpc.Serve(listener) }()
	}
	return <-ended
}

// listen removes the socket of a process that was killed.
func listen(socket string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
		return nil, err
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return net.Listen("unix", socket)
}

func logFailures(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	answer, err := handler(ctx, request)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", info.FullMethod, err)
	}
	return answer, err
}

func (d *driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: d.name, VendorVersion: version}, nil
}

func (d *driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	controller := &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE}
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{
		{Type: &csi.PluginCapability_Service_{Service: controller}},
	}}, nil
}

func (d *driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

// registrar answers kubelet, which watches a folder for sockets of drivers.
type registrar struct {
	registration.UnimplementedRegistrationServer
	driver *driver
}

func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type:              registration.CSIPlugin,
		Name:              r.driver.name,
		Endpoint:          r.driver.endpoint,
		SupportedVersions: []string{version},
	}, nil
}

func (r *registrar) NotifyRegistrationStatus(_ context.Context, status *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if !status.PluginRegistered {
		fmt.Fprintln(os.Stderr, "kubelet does not take the driver:", status.Error)
	}
	return &registration.RegistrationStatusResponse{}, nil
}
