//go:build !planeonly

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

// s3Options are the flags of the s3 program.
type s3Options struct {
	listen, dir, access, secret, tlsCert, tlsKey string
}

// runS3 serves S3 from a folder until it is told to stop. It offers what the
// backup store relies on and most stand-ins lack: object versions, object
// lock with retention, and conditional writes.
func runS3(args []string) int {
	options, err := parseS3(args)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err == nil {
		err = serveS3(options)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "s3:", err)
		return 1
	}
	return 0
}

func parseS3(args []string) (s3Options, error) {
	var o s3Options
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.StringVar(&o.listen, "listen", "", "loopback `address:port` to listen on")
	flags.StringVar(&o.dir, "dir", "", "`folder` that holds the buckets; created when missing")
	flags.StringVar(&o.access, "access", "", "access `key` of the one account")
	flags.StringVar(&o.secret, "secret", "", "secret `key` of the one account")
	flags.StringVar(&o.tlsCert, "tls-cert", "", "certificate `file`; without it the server speaks plain HTTP")
	flags.StringVar(&o.tlsKey, "tls-key", "", "private key `file` of the certificate")
	if err := flags.Parse(args[1:]); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.listen == "" || o.dir == "" || o.access == "" || o.secret == "":
		return o, errors.New("--listen, --dir, --access and --secret are all needed")
	case (o.tlsCert == "") != (o.tlsKey == ""):
		return o, errors.New("--tls-cert and --tls-key go together")
	}
	return o, requireLoopback(o.listen)
}

// requireLoopback refuses any other address: a server with a key pair given on
// the command line must never be reachable from outside the test machine.
func requireLoopback(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("--listen %q is not a loopback address", address)
	}
	return nil
}

func serveS3(o s3Options) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	// The backend changes the working directory, so every path is made
	// absolute first.
	for _, path := range []*string{&o.dir, &o.tlsCert, &o.tlsKey} {
		if *path == "" {
			continue
		}
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = absolute
	}
	backend, err := openBackend(o.dir)
	if err != nil {
		return err
	}
	return embedgw.RunVersityGW(ctx, backend, &embedgw.Config{
		RootUserAccess:    o.access,
		RootUserSecret:    o.secret,
		Ports:             []string{o.listen},
		MaxConnections:    4096,
		MaxRequests:       1024,
		MultipartMaxParts: 10000,
		CertFile:          o.tlsCert,
		KeyFile:           o.tlsKey,
		KeepAlive:         true,
		Quiet:             true,
	})
}

// openBackend lays out the store: objects under data, their older versions
// under versions, and, only where the file system has no extended attributes,
// their metadata under meta.
func openBackend(dir string) (*posix.Posix, error) {
	data := filepath.Join(dir, "data")
	options := posix.PosixOpts{
		VersioningDir: filepath.Join(dir, "versions"),
		// Zero would refuse to copy any object; this is S3's own limit.
		CopyObjectThreshold: 5 << 30,
	}
	for _, path := range []string{data, options.VersioningDir} {
		if err := os.MkdirAll(path, 0o755); err != nil {
			return nil, err
		}
	}
	attributes, err := openAttributes(data, filepath.Join(dir, "meta"), &options)
	if err != nil {
		return nil, err
	}
	return posix.New(data, attributes, options)
}

func openAttributes(data, sidecar string, options *posix.PosixOpts) (meta.MetadataStorer, error) {
	extended := meta.XattrMeta{}
	if extended.Test(data) == nil {
		return extended, nil
	}
	if err := os.MkdirAll(sidecar, 0o755); err != nil {
		return nil, err
	}
	options.SideCarDir = sidecar
	return meta.NewSideCar(sidecar)
}
