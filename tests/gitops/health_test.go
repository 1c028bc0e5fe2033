// The health checks of deploy/gitops, by the engines that run them, of each phase of each kind.
package gitops

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const deploy = "../../deploy"

// made lists the kinds that programs create, and no person keeps in Git.
var made = []string{"BackupRepository", "DataDownload", "DataUpload", "PodVolumeBackup", "PodVolumeRestore"}

// row is what Argo CD and Flux say of an object in a phase; "" is an object without a status.
type row struct{ kind, phase, argo, flux string }

// notChecked: Flux has no expressions for the kind.
const notChecked = ""

var table = []row{
	{"Backup", "", "Progressing", "InProgress"},
	{"Backup", "New", "Progressing", "InProgress"},
	{"Backup", "Queued", "Progressing", "InProgress"},
	{"Backup", "ReadyToStart", "Progressing", "InProgress"},
	{"Backup", "FailedValidation", "Degraded", "Failed"},
	{"Backup", "InProgress", "Progressing", "InProgress"},
	{"Backup", "WaitingForPluginOperations", "Progressing", "InProgress"},
	{"Backup", "WaitingForPluginOperationsPartiallyFailed", "Progressing", "InProgress"},
	{"Backup", "Finalizing", "Progressing", "InProgress"},
	{"Backup", "FinalizingPartiallyFailed", "Progressing", "InProgress"},
	{"Backup", "Completed", "Healthy", "Current"},
	{"Backup", "PartiallyFailed", "Degraded", "Failed"},
	{"Backup", "Failed", "Degraded", "Failed"},
	{"Backup", "Deleting", "Progressing", "InProgress"},
	{"Backup", "ANewerOne", "Progressing", "InProgress"},

	{"Restore", "", "Progressing", "InProgress"},
	{"Restore", "New", "Progressing", "InProgress"},
	{"Restore", "FailedValidation", "Degraded", "Failed"},
	{"Restore", "InProgress", "Progressing", "InProgress"},
	{"Restore", "WaitingForPluginOperations", "Progressing", "InProgress"},
	{"Restore", "WaitingForPluginOperationsPartiallyFailed", "Progressing", "InProgress"},
	{"Restore", "Finalizing", "Progressing", "InProgress"},
	{"Restore", "FinalizingPartiallyFailed", "Progressing", "InProgress"},
	{"Restore", "Completed", "Healthy", "Current"},
	{"Restore", "PartiallyFailed", "Degraded", "Failed"},
	{"Restore", "Failed", "Degraded", "Failed"},
	{"Restore", "ANewerOne", "Progressing", "InProgress"},

	{"Schedule", "", "Progressing", "InProgress"},
	{"Schedule", "New", "Progressing", "InProgress"},
	{"Schedule", "Enabled", "Healthy", "Current"},
	{"Schedule", "FailedValidation", "Degraded", "Failed"},

	{"BackupStorageLocation", "", "Progressing", "InProgress"},
	{"BackupStorageLocation", "Available", "Healthy", "Current"},
	{"BackupStorageLocation", "Unavailable", "Degraded", "Failed"},

	{"VolumeSnapshotLocation", "", "Healthy", notChecked},
	{"VolumeSnapshotLocation", "Available", "Healthy", notChecked},
	{"VolumeSnapshotLocation", "Unavailable", "Degraded", notChecked},

	{"DeleteBackupRequest", "", "Progressing", "InProgress"},
	{"DeleteBackupRequest", "New", "Progressing", "InProgress"},
	{"DeleteBackupRequest", "InProgress", "Progressing", "InProgress"},
	{"DeleteBackupRequest", "Processed", "Healthy", "Current"},

	{"DownloadRequest", "", "Progressing", "InProgress"},
	{"DownloadRequest", "New", "Progressing", "InProgress"},
	{"DownloadRequest", "Processed", "Healthy", "Current"},
	{"DownloadRequest", "Failed", "Degraded", "Failed"},

	{"ServerStatusRequest", "", "Progressing", "InProgress"},
	{"ServerStatusRequest", "New", "Progressing", "InProgress"},
	{"ServerStatusRequest", "Processed", "Healthy", "Current"},
}

func TestEachPhaseOfEachKindHasItsHealth(t *testing.T) {
	scripts, expressions := scripts(t), expressionsByKind(t)
	for _, row := range table {
		object := map[string]any{"apiVersion": "velero.io/v1", "kind": row.kind,
			"metadata": map[string]any{"name": "one"}, "spec": map[string]any{}}
		if row.phase != "" {
			object["status"] = map[string]any{"phase": row.phase}
		}
		judge(t, scripts, expressions, row, object)
	}
}

func TestARowForEachPhaseThatTheDefinitionsKnow(t *testing.T) {
	files, err := filepath.Glob(deploy + "/crds/velero.io_*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no definitions: %v", err)
	}
	for _, file := range files {
		var definition struct {
			Spec struct {
				Names    struct{ Kind string }
				Versions []struct {
					Schema struct {
						OpenAPIV3Schema struct {
							Properties struct {
								Status struct {
									Properties map[string]struct{ Enum []string }
								}
							}
						}
					}
				}
			}
		}
		read(t, file, &definition)
		kind := definition.Spec.Names.Kind
		if slices.Contains(made, kind) {
			continue
		}
		phases := definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties.Status.Properties["phase"].Enum
		if len(phases) == 0 {
			t.Errorf("%s: the definition knows no phase", kind)
		}
		for _, phase := range append(phases, "") {
			if !slices.ContainsFunc(table, func(row row) bool { return row.kind == kind && row.phase == phase }) {
				t.Errorf("%s: no row says what an object in phase %q is", kind, phase)
			}
		}
	}
}

func TestMoreThanThePhaseCounts(t *testing.T) {
	scripts, expressions := scripts(t), expressionsByKind(t)
	for _, one := range []struct {
		row
		more    string
		message string
	}{
		{row{"Backup", "Finalizing", "Progressing", "InProgress"},
			`metadata: { annotations: { backup-controller/blocked: the bucket is full } }`, "the bucket is full"},
		{row{"Backup", "PartiallyFailed", "Degraded", "Failed"}, `status: { errors: 2 }`, "PartiallyFailed: 2 errors"},
		{row{"Backup", "Failed", "Degraded", "Failed"}, `status: { failureReason: it was deleted }`, "Failed: it was deleted"},
		{row{"Restore", "FailedValidation", "Degraded", "Failed"},
			`status: { validationErrors: [no such backup, no such hook] }`, "no such backup; no such hook"},
		{row{"Schedule", "Enabled", "Suspended", "Current"}, `spec: { paused: true }`, "paused"},
		{row{"Schedule", "FailedValidation", "Degraded", "Failed"}, `spec: { paused: true }`, "FailedValidation"},
		{row{"BackupStorageLocation", "Unavailable", "Degraded", "Failed"}, `status: { message: no such bucket }`, "no such bucket"},
		{row{"BackupStorageLocation", "", "Progressing", "InProgress"}, `status: { lastSyncedTime: now }`, "not validated"},
		{row{"DeleteBackupRequest", "Processed", "Degraded", "Failed"}, `status: { errors: [it is locked, twice] }`, "it is locked; twice"},
		{row{"DeleteBackupRequest", "Processed", "Healthy", "Current"}, `status: { errors: [] }`, "Processed"},
		{row{"DownloadRequest", "Failed", "Degraded", "Failed"}, `status: { message: no such file }`, "no such file"},
	} {
		object := map[string]any{"apiVersion": "velero.io/v1", "kind": one.kind,
			"metadata": map[string]any{"name": "one"}, "spec": map[string]any{}, "status": map[string]any{}}
		if err := yaml.Unmarshal([]byte(one.more), &object); err != nil {
			t.Fatal(err)
		}
		if one.phase != "" {
			object["status"].(map[string]any)["phase"] = one.phase
		}
		if message := judge(t, scripts, expressions, one.row, object); !strings.Contains(message, one.message) {
			t.Errorf("%s %s: the message is %q, and not %q", one.kind, one.phase, message, one.message)
		}
	}
}

// judge compares what both say of an object with a row, and returns the message for Argo CD.
func judge(t *testing.T, scripts map[string]string, exprs map[string]expressions, row row, object map[string]any) string {
	t.Helper()
	health, err := runLua(scripts[row.kind], object)
	if err != nil || health.status != row.argo {
		t.Errorf("Argo CD: %s in phase %q is %q, and not %q (%v)", row.kind, row.phase, health.status, row.argo, err)
	}
	checks, has := exprs[row.kind]
	if has == (row.flux == notChecked) {
		t.Errorf("Flux: expressions for %s: %v", row.kind, has)
	}
	if has {
		status, err := checks.evaluate(object)
		if err != nil || status != row.flux {
			t.Errorf("Flux: %s in phase %q is %q, and not %q (%v)", row.kind, row.phase, status, row.flux, err)
		}
	}
	return health.message
}

// scripts are those of Argo CD, by kind.
func scripts(t *testing.T) map[string]string {
	const prefix = "resource.customizations.health.velero.io_"
	var settings struct{ Data map[string]string }
	read(t, deploy+"/gitops/argocd/health.yaml", &settings)
	scripts := map[string]string{}
	for key, script := range settings.Data {
		kind, ok := strings.CutPrefix(key, prefix)
		if !ok {
			t.Errorf("%s is no health of a kind of velero.io", key)
		}
		scripts[kind] = script
	}
	return scripts
}

// expressionsByKind are those of Flux.
func expressionsByKind(t *testing.T) map[string]expressions {
	var patch struct {
		Spec struct{ HealthCheckExprs []expressions }
	}
	read(t, deploy+"/gitops/flux/health.yaml", &patch)
	all := map[string]expressions{}
	for _, one := range patch.Spec.HealthCheckExprs {
		if one.APIVersion != "velero.io/v1" || one.Current == "" {
			t.Errorf("%s: %s, %q", one.Kind, one.APIVersion, one.Current)
		}
		all[one.Kind] = one
	}
	return all
}

func read(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = yaml.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}
