//go:build !planeonly

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	remotecommandconsts "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/tools/remotecommand"
	kubeletexec "k8s.io/kubelet/pkg/cri/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// runKubelet serves the one thing of a kubelet that the tests need: commands
// in containers, as the API server asks for them. There are no containers: a
// command says itself what comes of it.
//
//	say TEXT        prints TEXT
//	exit CODE TEXT  prints TEXT to stderr and ends with the code
//	wait FILE       waits until FILE exists
//	hang            never ends
//
// Each beginning and each end is one line of JSON in the log, written through
// before anything else happens.
func runKubelet(args []string) int {
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	listen := flags.String("listen", "", "loopback `address:port` to listen on")
	log := flags.String("log", "", "`file` that every command is written to")
	if err := flags.Parse(args[1:]); err != nil {
		return 2
	}
	if err := serveKubelet(*listen, *log); err != nil {
		fmt.Fprintln(os.Stderr, "kubelet:", err)
		return 1
	}
	return 0
}

func serveKubelet(listen, log string) error {
	if listen == "" || log == "" {
		return errors.New("--listen and --log are both needed")
	}
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	certificate, err := selfSigned()
	if err != nil {
		return err
	}
	node := &node{log: file}
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", node.exec)
	server := &http.Server{
		Addr:      listen,
		Handler:   mux,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}},
		// SPDY takes the connection over, which HTTP/2 does not allow.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	return server.ListenAndServeTLS("", "")
}

// node runs commands that belong to no process.
type node struct {
	lock sync.Mutex
	log  *os.File
}

func (n *node) exec(w http.ResponseWriter, req *http.Request) {
	options, err := kubeletexec.NewOptions(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	pod := req.PathValue("namespace") + "/" + req.PathValue("pod")
	kubeletexec.ServeExec(w, req, n, pod, "", req.PathValue("container"), req.URL.Query()["command"], options,
		time.Hour, 30*time.Second, remotecommandconsts.SupportedStreamingProtocols)
}

// ExecInContainer is called by ServeExec once the streams are there.
func (n *node) ExecInContainer(ctx context.Context, pod string, _ types.UID, container string, command []string,
	_ io.Reader, stdout, stderr io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	n.note(pod, container, command, "began")
	code, err := play(ctx, command, stdout, stderr)
	if err != nil {
		n.note(pod, container, command, "broke off")
		return err
	}
	n.note(pod, container, command, fmt.Sprintf("ended with %d", code))
	if code != 0 {
		return utilexec.CodeExitError{Err: fmt.Errorf("command terminated with exit code %d", code), Code: code}
	}
	return nil
}

func (n *node) note(pod, container string, command []string, event string) {
	line, err := json.Marshal(map[string]any{
		"pod": pod, "container": container, "command": command, "event": event,
		"at": time.Now().UTC().Format(time.RFC3339Nano),
	})
	if err != nil {
		panic(err)
	}
	n.lock.Lock()
	defer n.lock.Unlock()
	if _, err := n.log.Write(append(line, '\n')); err != nil {
		panic(err)
	}
}

func play(ctx context.Context, command []string, stdout, stderr io.Writer) (int, error) {
	rest := func(from int) string {
		if len(command) <= from {
			return ""
		}
		return strings.Join(command[from:], " ")
	}
	switch command[0] {
	case "say":
		fmt.Fprintln(stdout, rest(1))
		return 0, nil
	case "exit":
		code, err := strconv.Atoi(command[1])
		fmt.Fprintln(stderr, rest(2))
		return code, err
	case "wait":
		for {
			if _, err := os.Stat(rest(1)); err == nil {
				return 0, nil
			}
			select {
			case <-ctx.Done():
				return 0, ctx.Err()
			case <-time.After(20 * time.Millisecond):
			}
		}
	case "hang":
		<-ctx.Done()
		return 0, ctx.Err()
	}
	return 0, fmt.Errorf("no such command: %q", command)
}

func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
