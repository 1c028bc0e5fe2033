//! Placeholders in the manifests for values of the chart, and their replacements.

use anyhow::{Context as _, ensure};
use backup_deploy::{MOVER, MOVER_ARG, MOVER_VARIABLE, id};
use serde_json::{Value, json};

/// Placeholder for the namespace of the release.
pub(super) const NAMESPACE: &str = "helm-release-namespace";

/// Placeholder for braces that are not a template of ours.
const BRACES: &str = "helm-open-braces";

/// Placeholders on a separate line, and the lines that replace them. `{n}` is the column of the
/// line, `{m}` that of the lines below it, `{program}` the key of the program in the values.
const LINES: [(&str, &str); 10] = [
    (
        "helm-replicas",
        "replicas: {{ .Values.{program}.replicas }}",
    ),
    (
        "helm-image",
        "image: {{ include \"backup.image\" (list . .Values.{program}.image) | quote }}",
    ),
    (
        "helm-pull-policy",
        "imagePullPolicy: {{ .Values.image.pullPolicy }}",
    ),
    (
        "helm-args",
        "{{- include \"backup.{program}.args\" . | nindent {n} }}",
    ),
    (
        "helm-mover-variable",
        "{{- if include \"backup.moves\" . }}\n- name: MOVER_IMAGE\n  value: {{ include \"backup.image\" (list . .Values.mover.image) | quote }}\n{{- end }}",
    ),
    (
        "helm-resources",
        "resources:\n  {{- toYaml .Values.{program}.resources | nindent {m} }}",
    ),
    (
        "helm-scratch",
        "sizeLimit: {{ .Values.controller.scratchSize }}",
    ),
    (
        "helm-pull-secrets",
        "{{- with .Values.image.pullSecrets }}\nimagePullSecrets:\n  {{- toYaml . | nindent {m} }}\n{{- end }}",
    ),
    (
        "helm-store-ports",
        "{{- range .Values.networkPolicies.storePorts }}\n- port: {{ . }}\n  protocol: TCP\n{{- end }}",
    ),
    (
        "helm-init",
        "{{- with .Values.controller.initContainers }}\ninitContainers:\n  {{- toYaml . | nindent {m} }}\n{{- end }}",
    ),
];

/// Puts the placeholders into a Deployment, and into the account and the NetworkPolicy of the
/// mover's pods; other objects are not changed.
pub(super) fn put_placeholders(object: &mut Value) -> anyhow::Result<()> {
    if id(object) == ("ServiceAccount", MOVER) {
        object["helm-pull-secrets"] = json!("");
        return Ok(());
    }
    if id(object) == ("NetworkPolicy", MOVER) {
        let ports = object.pointer_mut("/spec/egress/1/ports");
        *ports.context("no ports of the store")? = json!(["helm-store-ports"]);
        return Ok(());
    }
    let Some(program) = super::program_of(object) else {
        return Ok(());
    };
    let is_controller = program == "backup-controller";
    object["spec"]["replicas"] = json!("helm-replicas");
    let pod = object
        .pointer_mut("/spec/template/spec")
        .context("no pod")?;
    if is_controller {
        let scratch = pod["volumes"]
            .as_array_mut()
            .into_iter()
            .flatten()
            .find(|volume| volume["name"] == "scratch");
        scratch.context("no volume scratch")?["emptyDir"]["sizeLimit"] = json!("helm-scratch");
        pod["helm-init"] = json!("");
    }
    pod["helm-pull-secrets"] = json!("");
    let container = &mut pod["containers"][0];
    container["image"] = json!("helm-image");
    container["imagePullPolicy"] = json!("helm-pull-policy");
    container["resources"] = json!("helm-resources");
    let args = container["args"].as_array_mut().context("no arguments")?;
    // These flags come from the values, in the order in which kustomize adds them.
    args.retain(|arg| {
        !arg.as_str()
            .is_some_and(|arg| arg.starts_with("--guard=") || arg == MOVER_ARG)
    });
    args.push(json!("helm-args"));
    if is_controller {
        let variables = container["env"].as_array_mut().context("no variables")?;
        variables.retain(|variable| variable["name"] != MOVER_VARIABLE);
        variables.push(json!("helm-mover-variable"));
    }
    Ok(())
}

/// An object as a template.
pub(super) fn templated(object: &Value) -> anyhow::Result<String> {
    let text = serde_saphyr::to_string(object)?;
    ensure!(
        !text.contains(BRACES),
        "{BRACES} stands for something else here: {text}"
    );
    // Templates in other languages, such as templates of alerts, must stay unchanged.
    let text = text.replace("{{", BRACES);
    let program =
        super::program_of(object).map_or("", |program| program.trim_start_matches("backup-"));
    let mut result = String::new();
    for line in text.lines() {
        let known = LINES.iter().find(|(word, _)| line.contains(word));
        let Some((_, lines)) = known else {
            result = result + &line.replace(NAMESPACE, "{{ .Release.Namespace }}") + "\n";
            continue;
        };
        // Fields of a list entry are indented further than its dash.
        let column = line.len() - line.trim_start().len();
        for more in lines.lines() {
            let more = more.replace("{program}", program);
            let more = more
                .replace("{n}", &column.to_string())
                .replace("{m}", &(column + 2).to_string());
            result = result + &" ".repeat(column) + &more + "\n";
        }
    }
    Ok(result.replace(BRACES, "{{ \"{{\" }}"))
}
