use std::collections::BTreeSet;

use serde_json::Value;

use super::*;

fn deployments(options: &Options) -> Vec<Value> {
    let objects = programs("vault", options).unwrap();
    PROGRAMS
        .map(|name| {
            objects
                .iter()
                .find(|object| id(object) == ("Deployment", name))
                .unwrap()
                .clone()
        })
        .into()
}

#[test]
fn every_object_is_of_a_known_kind_and_carries_our_label() {
    for object in once("vault")
        .unwrap()
        .into_iter()
        .chain(everything("vault").unwrap())
    {
        let (name, _) = id(&object);
        let kind = kind(name).unwrap_or_else(|| panic!("no kind {name}"));
        let version = if kind.group.is_empty() {
            "v1".to_owned()
        } else {
            format!("{}/{}", kind.group, kind.version)
        };
        assert_eq!(object["apiVersion"], version, "{object}");
        assert_eq!(
            object["metadata"]["namespace"] == "vault",
            kind.namespaced,
            "{object}"
        );
        assert_eq!(
            object["metadata"]["labels"]["app.kubernetes.io/part-of"], "backup",
            "{object}"
        );
    }
}

#[test]
fn objects_are_told_apart_by_kind_and_name() {
    let objects = [once("vault").unwrap(), everything("vault").unwrap()].concat();
    let ids: BTreeSet<_> = objects.iter().map(id).collect();
    assert_eq!(ids.len(), objects.len());
}

#[test]
fn a_guard_ships_no_definitions_and_writes_nothing_of_the_other_server() {
    let guard = programs(
        "vault",
        &Options {
            mode: Mode::Guard,
            ..Options::default()
        },
    )
    .unwrap();
    for object in &guard {
        let (kind, name) = id(object);
        assert!(
            !["Namespace", "CustomResourceDefinition"].contains(&kind),
            "{name}"
        );
        assert!(
            ![
                "backup-engine-phases",
                "backup-read-keys",
                "backup-volume-data"
            ]
            .contains(&name)
                || !kind.ends_with("Binding"),
            "{name}"
        );
        if kind == "ClusterRole" && name == "backup-controller" {
            let verbs: BTreeSet<&str> = object["rules"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|rule| rule["apiGroups"][0] != "events.k8s.io")
                .flat_map(|rule| rule["verbs"].as_array().unwrap())
                .map(|verb| verb.as_str().unwrap())
                .collect();
            assert_eq!(verbs, ["get", "list", "watch"].into());
        }
    }
}

#[test]
fn what_is_chosen_is_in_the_deployments() {
    let options = Options {
        mode: Mode::Guard,
        profiles: vec!["percona-ps".to_owned()],
        host_network: true,
        registry: Some("registry.example.com/backup/".to_owned()),
        tag: Some("v9".to_owned()),
        replicas: Some(3),
        webhook_args: vec!["--log-level=debug".to_owned()],
        features: vec!["EnableCSI".to_owned()],
        controller_args: vec!["--log-format=json".to_owned()],
        ..Options::default()
    };
    for (deployment, (program, last)) in deployments(&options).iter().zip([
        ("backup-webhook", "--log-level=debug"),
        ("backup-controller", "--log-format=json"),
    ]) {
        let pod = &deployment["spec"]["template"]["spec"];
        assert_eq!(
            pod["containers"][0]["image"],
            format!("registry.example.com/backup/{program}:v9")
        );
        assert_eq!(deployment["spec"]["replicas"], 3);
        assert_eq!(pod["hostNetwork"], true);
        let args: Vec<&str> = pod["containers"][0]["args"]
            .as_array()
            .unwrap()
            .iter()
            .map(|arg| arg.as_str().unwrap())
            .collect();
        let features = if program == "backup-controller" {
            &["--features=EnableCSI"][..]
        } else {
            &[]
        };
        let wanted = [&["--guard=velero", "--guard=percona-ps"], features, &[last]].concat();
        assert_eq!(args[args.len() - wanted.len()..], wanted);
    }
}

#[test]
fn the_webhook_reads_cron_as_the_controller_does() {
    let args = |options: &Options| {
        deployments(options)
            .iter()
            .map(|one| one["spec"]["template"]["spec"]["containers"][0]["args"].to_string())
            .collect()
    };
    let dialect = "--cron-dialect=netresearch".to_owned();
    let options = Options {
        controller_args: vec![dialect.clone()],
        ..Options::default()
    };
    let both: Vec<String> = args(&options);
    assert!(
        both.len() == 2 && both.iter().all(|args| args.matches(&dialect).count() == 1),
        "{both:?}"
    );
    let own = "--cron-dialect=robfig".to_owned();
    let of_webhook = args(&Options {
        webhook_args: vec![own.clone()],
        ..options
    })
    .remove(0);
    assert!(
        of_webhook.contains(&own) && !of_webhook.contains(&dialect),
        "{of_webhook}"
    );
}

#[test]
fn without_a_choice_the_images_are_those_of_this_version() {
    for (deployment, program) in deployments(&Options::default()).iter().zip(PROGRAMS) {
        let image = &deployment["spec"]["template"]["spec"]["containers"][0]["image"];
        assert_eq!(image, &format!("{program}:v{}", env!("CARGO_PKG_VERSION")));
    }
}

/// The controller's argument with the mover's image, and the variable that it refers to.
fn mover(options: &Options) -> (bool, Option<Value>) {
    let [_, controller]: [Value; 2] = deployments(options).try_into().unwrap();
    let container = &controller["spec"]["template"]["spec"]["containers"][0];
    let list = |name: &str| container[name].as_array().unwrap().clone();
    let variable = list("env")
        .into_iter()
        .find(|variable| variable["name"] == MOVER_VARIABLE);
    (
        list("args").contains(&Value::from(MOVER_ARG)),
        variable.map(|variable| variable["value"].clone()),
    )
}

#[test]
fn the_image_of_the_mover_follows_registry_and_tag() {
    let version = env!("CARGO_PKG_VERSION");
    let image = |text: String| (true, Some(Value::from(text)));
    assert_eq!(
        mover(&Options::default()),
        image(format!("backup-mover:v{version}"))
    );
    let options = Options {
        registry: Some("registry.example.com/backup/".to_owned()),
        tag: Some("v9".to_owned()),
        ..Options::default()
    };
    assert_eq!(
        mover(&options),
        image("registry.example.com/backup/backup-mover:v9".to_owned())
    );
    for without in [
        Options {
            without_data_mover: true,
            ..Options::default()
        },
        Options {
            mode: Mode::Guard,
            ..Options::default()
        },
    ] {
        assert_eq!(mover(&without), (false, None), "{without:?}");
    }
}

#[test]
fn pods_that_move_data_have_an_account_without_a_token() {
    let account = |mode: Mode| {
        let options = Options {
            mode,
            ..Options::default()
        };
        let objects = programs("vault", &options).unwrap();
        objects
            .into_iter()
            .find(|object| id(object) == ("ServiceAccount", MOVER))
    };
    assert_eq!(
        account(Mode::Engine).unwrap()["automountServiceAccountToken"],
        false
    );
    assert_eq!(account(Mode::Guard), None);
}

#[test]
fn network_policies_are_a_choice_and_let_nothing_into_the_pods_of_the_mover() {
    let policies = |network_policies: bool| -> Vec<Value> {
        let options = Options {
            network_policies,
            ..Options::default()
        };
        let objects = programs("vault", &options).unwrap();
        objects
            .into_iter()
            .filter(|object| id(object).0 == "NetworkPolicy")
            .collect()
    };
    assert!(policies(false).is_empty());
    let policies = policies(true);
    let spec = |name: &str| {
        let found = policies.iter().find(|policy| id(policy).1 == name);
        found.unwrap()["spec"].clone()
    };
    let mover = spec(MOVER);
    assert_eq!(mover["policyTypes"], json!(["Ingress", "Egress"]));
    assert_eq!(mover.get("ingress"), None);
    let names = |ports: &Value, key: &str| -> BTreeSet<String> {
        let ports = ports.as_array().unwrap().iter();
        ports
            .map(|port| port[key].as_str().unwrap().to_owned())
            .collect()
    };
    for (deployment, program) in deployments(&Options::default()).iter().zip(PROGRAMS) {
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        let admitted = names(&spec(program)["ingress"][0]["ports"], "port");
        assert_eq!(admitted, names(&container["ports"], "name"), "{program}");
    }
}

#[test]
fn an_argument_lets_the_controller_move_data_if_it_names_an_image() {
    for (args, moves) in [
        (&["--mover-image=r/backup-mover:v1"][..], true),
        (&["--mover-image", "r/backup-mover:v1"][..], true),
        (&[MOVER_ARG][..], true),
        (&["--mover-image="][..], false),
        (&["--mover-image"][..], false),
        (&["--features=EnableCSI"][..], false),
    ] {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        assert_eq!(enables_data_mover(&args), moves, "{args:?}");
    }
}

#[test]
fn each_profile_that_is_built_in_can_be_chosen() {
    let all = Options::known_profiles();
    assert!(
        all.len() >= 5 && all.iter().all(|name| Options::knows_profile(name)),
        "{all:?}"
    );
    for unknown in ["velero", "own", "acme", "../once"] {
        assert!(!Options::knows_profile(unknown), "{unknown}");
    }
    let wrong = Options {
        profiles: vec!["acme".to_owned()],
        ..Options::default()
    };
    assert!(
        matches!(programs("vault", &wrong), Err(DeployError::Missing(path)) if path.contains("acme"))
    );
}

#[test]
fn no_namespace_of_the_manifests_is_left() {
    fn look(value: &Value, key: &str) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| look(item, key)),
            Value::Object(fields) => fields.iter().for_each(|(key, field)| look(field, key)),
            other => assert!(other != NAMESPACE, "{key}: {other}"),
        }
    }
    for object in once("vault")
        .unwrap()
        .iter()
        .chain(&everything("vault").unwrap())
    {
        // Names of an API group, and of another server's account, are no namespaces.
        if id(object).0 != "CustomResourceDefinition" {
            look(object, "");
        }
    }
}

#[test]
fn rights_are_the_last_to_go_and_registrations_the_last_to_come() {
    assert_eq!(Stage::REMOVAL.first(), Stage::ALL.last());
    assert_eq!(Stage::REMOVAL.last(), Some(&Stage::Rights));
    for stage in Stage::ALL {
        assert!(KINDS.iter().any(|kind| kind.stage == stage), "{stage:?}");
    }
}
