package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Disks and their snapshots are files in the state folder. A PersistentVolume is on the disk ID if its hostPath is
// /disks/ID. A file "do-METHOD-ID" (snapshot, delete or create) has words that say how that goes wrong.
type disks struct {
	log    logrus.FieldLogger
	region string
}

const disksFolder = "/disks/"

func (d *disks) Init(config map[string]string) error {
	note("init", config["region"])
	if config["region"] == "" {
		return errors.New("config has no region")
	}
	if file := config["credentialsFile"]; file != "" {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(stateFile("credentials-"+config["region"]), content, 0o600); err != nil {
			return err
		}
	}
	d.region = config["region"]
	return nil
}

func (d *disks) GetVolumeID(given runtime.Unstructured) (string, error) {
	at, _, _ := unstructured.NestedString(given.UnstructuredContent(), "spec", "hostPath", "path")
	if !strings.HasPrefix(at, disksFolder) {
		return "", nil
	}
	return path.Base(at), nil
}

func (d *disks) SetVolumeID(given runtime.Unstructured, id string) (runtime.Unstructured, error) {
	volume := &unstructured.Unstructured{Object: given.UnstructuredContent()}
	err := unstructured.SetNestedField(volume.Object, disksFolder+id, "spec", "hostPath", "path")
	return volume, err
}

func (d *disks) GetVolumeInfo(id, zone string) (string, *int64, error) {
	note("info", id+"@"+zone)
	if strings.HasSuffix(id, "-fast") {
		iops := int64(3000)
		return "fast", &iops, nil
	}
	return "slow", nil, nil
}

func (d *disks) CreateSnapshot(id, zone string, tags map[string]string) (string, error) {
	note("snapshot", id)
	d.log.Infof("snapshotting disk %s", id)
	if err := diskTrouble("snapshot", id); err != nil {
		return "", err
	}
	snapshot := fmt.Sprintf("snap-%s-%s-%d", d.region, id, time.Now().UnixNano())
	text := fmt.Sprintf("of %s in %s for %s %s", id, zone, tags["velero.io/backup"], tags["velero.io/pv"])
	if err := os.WriteFile(stateFile(snapshot), []byte(text), 0o644); err != nil {
		return "", err
	}
	return snapshot, diskTrouble("after-snapshot", id)
}

func (d *disks) CreateVolumeFromSnapshot(snapshot, kind, zone string, iops *int64) (string, error) {
	note("create", snapshot)
	d.log.Warnf("a disk is made of %s", snapshot)
	if err := diskTrouble("create", snapshot); err != nil {
		return "", err
	}
	if !exists(snapshot) {
		return "", fmt.Errorf("no snapshot %s in %s", snapshot, d.region)
	}
	rate := int64(0)
	if iops != nil {
		rate = *iops
	}
	id := fmt.Sprintf("disk-%d", time.Now().UnixNano())
	text := fmt.Sprintf("from %s, %s in %s, %d", snapshot, kind, zone, rate)
	return id, os.WriteFile(stateFile(id), []byte(text), 0o644)
}

func (d *disks) DeleteSnapshot(snapshot string) error {
	note("delete", snapshot)
	if err := diskTrouble("delete", snapshot); err != nil {
		return err
	}
	if err := os.Remove(stateFile(snapshot)); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

// Does what a file says, for every id that begins with what follows in its name.
func diskTrouble(method, id string) error {
	folder := path.Dir(stateFile("x"))
	entries, _ := os.ReadDir(folder)
	for _, entry := range entries {
		of, found := strings.CutPrefix(entry.Name(), "do-"+method+"-")
		if !found || !strings.Contains(id, of) {
			continue
		}
		script, _ := os.ReadFile(path.Join(folder, entry.Name()))
		word, value, _ := strings.Cut(strings.TrimSpace(string(script)), "=")
		switch word {
		case "fail":
			return errors.New(value)
		case "hang":
			time.Sleep(time.Hour)
		case "slow":
			wait, _ := time.ParseDuration(value)
			time.Sleep(wait)
		case "exit":
			os.Exit(7)
		}
	}
	return nil
}
