use super::*;

#[test]
fn defaults_are_those_in_the_manual() {
    let args = Args::parse_from(["backup-controller"]);
    assert_eq!(args.namespace, "velero");
    assert_eq!(args.default_backup_ttl.to_string(), "720h0m0s");
    assert_eq!(args.default_item_operation_timeout.to_string(), "4h0m0s");
    assert_eq!(args.resource_timeout.to_string(), "10m0s");
    assert_eq!(args.store_validation_frequency.to_string(), "1m0s");
    assert_eq!(args.backup_sync_period.to_string(), "1m0s");
    assert_eq!(args.stray_folder_ttl.to_string(), "720h0m0s");
    for (ttl, taken) in [
        ("0", true),
        ("24h", true),
        ("23h59m", false),
        ("-1h", false),
    ] {
        let flag = format!("--stray-folder-ttl={ttl}");
        assert_eq!(
            Args::try_parse_from(["backup-controller", &flag]).is_ok(),
            taken,
            "{ttl}"
        );
    }
    assert_eq!((args.client_page_size, args.concurrent_backups), (500, 1));
    assert!(args.leader_elect && !args.schedule_skip_immediately);
    assert_eq!(args.cron_dialect, Dialect::Robfig);
    let error = Args::try_parse_from(["backup-controller", "--cron-dialect=quartz"]).unwrap_err();
    assert_says!(error, "netresearch");
    assert_eq!(args.operation_pace().to_string(), "10s");
    assert_eq!(args.retention_pace().to_string(), "1h0m0s");
    assert!(!args.csi() && args.features.is_empty());
    assert_eq!(
        (args.plugin_dir, args.plugin_timeout.to_string()),
        ("/plugins".into(), "10m0s".to_owned())
    );
    assert!(Args::try_parse_from(["backup-controller", "--plugin-timeout=0"]).is_err());
    let limits = Args::parse_from(["backup-controller"]).restore_limits();
    assert_eq!(limits, Limits::DEFAULT);
    for (flag, taken) in [
        ("--restore-max-size=4Gi", true),
        ("--restore-max-size=0", false),
        ("--restore-max-size=x", false),
        ("--restore-max-items=0", false),
        ("--restore-max-items=5000000", true),
        ("--max-backup-extraction-size=1024", true),
        ("--max-backup-extraction-size=1Gi", false),
        ("--restore-item-memory=64Mi", true),
        ("--restore-item-memory=63Mi", false),
    ] {
        assert_eq!(
            Args::try_parse_from(["backup-controller", flag]).is_ok(),
            taken,
            "{flag}"
        );
    }
}

#[test]
fn the_size_of_a_backup_can_be_given_as_with_velero() {
    let bytes = |flag: &str| {
        Args::parse_from(["backup-controller", flag])
            .restore_limits()
            .bytes
    };
    assert_eq!(bytes("--max-backup-extraction-size=1024"), 1 << 30);
    assert_eq!(
        bytes("--max-backup-extraction-size=0"),
        Limits::DEFAULT.bytes
    );
    let both = [
        "backup-controller",
        "--max-backup-extraction-size=1",
        "--restore-max-size=1Gi",
    ];
    assert!(Args::try_parse_from(both).is_err());
}

#[test]
fn volume_data_is_moved_only_with_an_image() {
    let parse =
        |flags: &[&str]| Args::try_parse_from(std::iter::once(&"backup-controller").chain(flags));
    for none in [
        &[][..],
        &["--mover-image="],
        &["--data-mover-concurrency=3"],
    ] {
        assert_eq!(parse(none).unwrap().mover(), None, "{none:?}");
    }
    let expected = MoverSettings {
        image: "example.com/backup-mover:1".to_owned(),
        memory_limit: "512Mi".to_owned(),
        upload_limit: None,
        download_limit: None,
        prepare_timeout: std::time::Duration::from_mins(30),
        concurrency: 20,
    };
    let image = "--mover-image=example.com/backup-mover:1";
    assert_eq!(parse(&[image]).unwrap().mover(), Some(expected.clone()));
    let all = [
        image,
        "--mover-memory-limit=1Gi",
        "--mover-upload-limit=20Mi",
        "--mover-download-limit=500k",
        "--data-mover-prepare-timeout=1h",
        "--data-mover-concurrency=2",
        "--default-snapshot-move-data",
    ];
    let args = parse(&all).unwrap();
    assert!(args.default_snapshot_move_data);
    let changed = MoverSettings {
        memory_limit: "1Gi".to_owned(),
        upload_limit: std::num::NonZeroU64::new(20 << 20),
        download_limit: std::num::NonZeroU64::new(500_000),
        prepare_timeout: std::time::Duration::from_hours(1),
        concurrency: 2,
        ..expected
    };
    assert_eq!(args.mover(), Some(changed));
    for refused in [
        "--mover-memory-limit=128Mi",
        "--mover-memory-limit=much",
        "--mover-upload-limit=0",
        "--mover-upload-limit=20",
        "--mover-download-limit=fast",
        "--data-mover-prepare-timeout=0",
        "--data-mover-concurrency=0",
    ] {
        assert!(parse(&[refused]).is_err(), "{refused}");
    }
}

#[test]
fn default_locations_of_snapshots_are_by_provider() {
    let parse = |list: &str| {
        let flag = format!("--default-volume-snapshot-locations={list}");
        Args::try_parse_from(["backup-controller", &flag])
            .map(|args| args.default_volume_snapshot_locations)
    };
    let pair = |provider: &str, name: &str| (provider.to_owned(), name.to_owned());
    assert_eq!(
        parse("aws:east,x.io/y:z").unwrap(),
        [pair("aws", "east"), pair("x.io/y", "z")]
    );
    assert_says!(parse("aws").unwrap_err(), "provider:name");
}

#[test]
fn features_are_those_of_velero() {
    let args = Args::parse_from([
        "backup-controller",
        "--features=EnableCSI, EnableAPIGroupVersions,Later,",
        "--item-operation-sync-frequency=0",
    ]);
    assert!(args.csi());
    assert_eq!(args.unknown_features().collect::<Vec<_>>(), ["Later"]);
    assert_eq!(args.operation_pace().to_string(), "10s");
}

#[test]
fn durations_and_booleans_are_read_as_people_write_them() {
    let args = Args::parse_from([
        "backup-controller",
        "--resource-timeout=-1s",
        "--leader-elect=false",
        "--default-backup-ttl",
        "1h30m",
    ]);
    assert!(args.resource_timeout < GoDuration::from_secs(0));
    assert!(!args.leader_elect);
    assert_eq!(args.default_backup_ttl.as_secs(), 5400);
    let error = Args::try_parse_from(["backup-controller", "--default-backup-ttl=1d"]).unwrap_err();
    assert_says!(error, "is not a duration");
}

#[test]
fn notifications_go_to_an_allowed_host_only() {
    let settings = |flags: &[&str]| {
        let flags = std::iter::once(&"backup-controller").chain(flags);
        Args::try_parse_from(flags).map(|args| args.notify())
    };
    let url = "--notify-url=https://hooks.example.com/x";
    for none in [&[][..], &["--notify-url="]] {
        assert_eq!(settings(none).unwrap().unwrap(), None);
    }
    let found = settings(&[url]).unwrap().unwrap().unwrap();
    assert_eq!(found.url.as_str(), "https://hooks.example.com/x");
    assert_eq!(found.secret, None);
    let secret = "--notify-secret=hook";
    let allowed = "--allowed-endpoints=minio,*.example.com";
    let found = settings(&[url, secret, allowed]).unwrap().unwrap();
    assert_eq!(found.unwrap().secret.as_deref(), Some("hook"));
    let refused = settings(&[url, "--allowed-endpoints=minio"]).unwrap();
    assert_says!(refused.unwrap_err(), "--notify-url: hooks.example.com");
    assert!(settings(&[secret]).is_err(), "a Secret without a URL");
}

#[test]
fn notifications_with_a_url_or_secret_that_cannot_be_meant_are_refused() {
    let settings = |flags: &[&str]| {
        let flags = std::iter::once(&"backup-controller").chain(flags);
        Args::try_parse_from(flags).map(|args| args.notify())
    };
    for url in [
        "hooks.example.com",
        "hooks.example.com:8080/x",
        "ftp://hooks.example.com/x",
        "mailto:ops@example.com",
        "https://",
        "https://hooks.example.com:99999/",
        "https://jane:secret@hooks.example.com/x",
        "https://jane@hooks.example.com/x",
        " ",
        "7",
    ] {
        let flag = format!("--notify-url={url}");
        let error = settings(&[flag.as_str()]).unwrap().unwrap_err().to_string();
        assert_says!(
            error,
            "--notify-url: an http:// or https:// URL without user"
        );
        assert!(!error.contains("secret"), "{error}");
    }
    let url = "--notify-url=https://hooks.example.com/x";
    for secret in ["My Secret", "../hook", "a/b"] {
        let flag = format!("--notify-secret={secret}");
        let error = settings(&[url, flag.as_str()]).unwrap_err();
        assert_says!(
            error,
            "--notify-secret",
            "it has to be the name of a Secret"
        );
    }
}

#[test]
fn verifications_read_at_a_bounded_rate() {
    let rate = |flags: &[&str]| {
        let flags = std::iter::once(&"backup-controller").chain(flags);
        Args::try_parse_from(flags).map(|args| args.verify_read_limit.get())
    };
    assert_eq!(rate(&[]).unwrap(), 20 << 20);
    assert_eq!(rate(&["--verify-read-limit=1Mi"]).unwrap(), 1 << 20);
    assert!(rate(&["--verify-read-limit=0"]).is_err());
}
