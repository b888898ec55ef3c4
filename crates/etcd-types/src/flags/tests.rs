//! Flags of every minor against golden files, and what is refused.

use std::path::PathBuf;
use std::time::Duration;

use super::*;
use crate::id::Revision;
use crate::policy::{Feature, newest};

fn plain() -> Config {
    let url = |text: &str| vec![text.parse().expect(text)];
    Config {
        name: "orders-0".to_owned(),
        data_dir: "/data/etcd".to_owned(),
        listen_peer: vec!["http://0.0.0.0:2380".parse().expect("a URL")],
        listen_client: url("http://0.0.0.0:2379"),
        listen_metrics: Vec::new(),
        advertise_peer: vec!["http://orders-0.orders.shop.svc:2380".parse().expect("a URL")],
        advertise_client: url("http://orders-0.orders.shop.svc:2379"),
        first: None,
        client_tls: None,
        peer_tls: None,
        tuning: Tuning::default(),
        figures: Figures::Basic,
        check_at_start: false,
        check_every: None,
        check_compactions_every: None,
        stop_serving_on_defrag: false,
        max_learners: None,
        extra: Vec::new(),
    }
}

/// Everything a version can be told.
fn full(version: &Version) -> Config {
    let has = |feature: Feature| feature.is_in(version);
    let peer = |name: &str| {
        let url = format!("https://{name}.orders.shop.svc:2380")
            .parse()
            .expect("a URL");
        (name.to_owned(), url)
    };
    let file = |name: &str| format!("/tls/{name}");
    let compaction = if has(Feature::MetricsAddress) {
        Compaction::Revision(Revision(1000))
    } else {
        Compaction::Periodic(Duration::from_hours(2))
    };
    Config {
        listen_metrics: if has(Feature::MetricsAddress) {
            vec!["http://0.0.0.0:2381".parse().expect("a URL")]
        } else {
            Vec::new()
        },
        first: Some(First {
            state: FirstState::Existing,
            token: "shop/orders/1".to_owned(),
            members: vec![peer("orders-0"), peer("orders-1")],
        }),
        client_tls: Some(ClientTls {
            certificate: file("server.crt"),
            key: file("server.key"),
            authority: Some(file("server-ca.crt")),
        }),
        peer_tls: Some(PeerTls {
            certificate: file("peer.crt"),
            key: file("peer.key"),
            authority: file("peer-ca.crt"),
        }),
        tuning: Tuning {
            quota: Some(8_589_934_592),
            compaction: Some(compaction),
            snapshot_count: Some(10_000),
            heartbeat_ms: Some(100),
            election_ms: Some(1000),
            max_request_bytes: Some(1_572_864),
        },
        figures: Figures::Extensive,
        check_at_start: has(Feature::CorruptAlarm),
        check_every: has(Feature::CorruptAlarm).then_some(Duration::from_hours(1)),
        check_compactions_every: has(Feature::CompactHashCheck).then_some(Duration::from_mins(1)),
        stop_serving_on_defrag: has(Feature::StopServingOnDefrag),
        max_learners: has(Feature::ManyLearners).then_some(2),
        extra: vec!["--max-wals=7".to_owned(), "-cors=*".to_owned()],
        ..plain()
    }
}

fn with(extra: &[&str], version: &str) -> Result<Vec<String>, String> {
    let config = Config {
        extra: extra.iter().map(|&flag| flag.to_owned()).collect(),
        ..plain()
    };
    let base = render(&plain(), &version.parse().expect(version)).map_err(|error| error.to_string())?;
    let all = render(&config, &version.parse().expect(version)).map_err(|error| error.to_string())?;
    Ok(all.into_iter().filter(|flag| !base.contains(flag)).collect())
}

#[test]
fn every_minor_is_told_what_its_golden_file_says() {
    for minor in Minor::ALL {
        let version = newest(minor);
        let rendered = |config: &Config| render(config, &version).expect("flags").join("\n");
        let text = format!(
            "# plain\n{}\n\n# everything\n{}\n",
            rendered(&plain()),
            rendered(&full(&version))
        );
        let path: PathBuf = [
            env!("CARGO_MANIFEST_DIR"),
            "tests",
            "golden",
            &format!("flags-{minor}.txt"),
        ]
        .iter()
        .collect();
        let golden = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(text, golden, "{}", path.display());
    }
}

#[test]
fn a_flag_of_any_minor_is_said_by_the_name_this_one_has() {
    for (given, version, said) in [
        (
            "--corrupt-check-time=1h",
            "3.5.35",
            "--experimental-corrupt-check-time=1h",
        ),
        (
            "--experimental-corrupt-check-time=1h",
            "3.7.3",
            "--corrupt-check-time=1h",
        ),
        (
            "--experimental-corrupt-check-time=1h",
            "3.4.44",
            "--experimental-corrupt-check-time=1h",
        ),
        (
            "--experimental-initial-corrupt-check",
            "3.7.3",
            "--feature-gates=InitialCorruptCheck=true",
        ),
        (
            "--feature-gates=InitialCorruptCheck=false",
            "3.5.35",
            "--experimental-initial-corrupt-check=false",
        ),
        ("--log-level=warn", "3.6.16", "--log-level=warn"),
        ("--not-known-here=1", "3.2.25", "--not-known-here=1"),
        ("-socket-reuse-port", "3.5.21", "--socket-reuse-port"),
    ] {
        assert_eq!(
            with(&[given], version),
            Ok(vec![said.to_owned()]),
            "{given} {version}"
        );
    }
}

#[test]
fn gates_are_said_in_one_flag_and_the_users_word_counts() {
    let config = Config {
        check_at_start: true,
        extra: vec!["--feature-gates=LeaseCheckpoint=true,InitialCorruptCheck=false".to_owned()],
        ..plain()
    };
    let flags = render(&config, &newest(Minor::V3_7)).expect("flags");
    let gates: Vec<_> = flags
        .iter()
        .filter(|flag| flag.starts_with("--feature-gates"))
        .collect();
    assert_eq!(
        gates,
        ["--feature-gates=InitialCorruptCheck=false,LeaseCheckpoint=true"]
    );
}

#[test]
fn what_a_version_does_not_have_is_an_error_that_says_who_has_it() {
    for (extra, version, part) in [
        ("--enable-v2", "3.6.16", "before 3.6"),
        ("--socket-reuse-port", "3.4.44", "since 3.5.0"),
        ("--feature-gates=Unheard=true", "3.5.35", "since 3.6.0"),
        (
            "--experimental-stop-grpc-service-on-defrag",
            "3.5.13",
            "since 3.5.14",
        ),
    ] {
        let error = with(&[extra], version).expect_err(extra);
        assert!(error.contains(part) && error.contains(version), "{error}");
    }
    let asks: [fn(&mut Config); 5] = [
        |config| config.listen_metrics = vec!["http://a:1".parse().expect("a URL")],
        |config| config.check_at_start = true,
        |config| config.check_every = Some(Duration::from_secs(1)),
        |config| config.tuning.compaction = Some(Compaction::Revision(Revision(1))),
        |config| config.tuning.compaction = Some(Compaction::Periodic(Duration::from_mins(90))),
    ];
    for (number, ask) in asks.iter().enumerate() {
        let mut config = plain();
        ask(&mut config);
        assert!(render(&config, &newest(Minor::V3_2)).is_err(), "{number}");
        assert!(render(&config, &newest(Minor::V3_3)).is_ok(), "{number}");
    }
}

#[test]
fn what_belongs_to_the_operator_or_is_no_flag_is_refused() {
    for name in RESERVED {
        for spelled in [format!("--{name}=x"), format!("-{name}")] {
            let error = with(&[&spelled], "3.6.16").expect_err(&spelled);
            assert!(error.contains("belongs to the operator"), "{error}");
        }
    }
    for text in [
        "",
        "max-wals=1",
        "--",
        "---name=x",
        "--max wals=1",
        "--MAX-WALS=1",
    ] {
        let error = with(&[text], "3.6.16").expect_err(text);
        assert!(error.contains("for example"), "{error}");
    }
    for twice in [
        ["--max-wals=1", "-max-wals=2"],
        ["--corrupt-check-time=1h", "--experimental-corrupt-check-time=2h"],
    ] {
        let error = with(&twice, "3.6.16").expect_err(twice[0]);
        assert!(error.contains("twice"), "{error}");
    }
    assert!(matches!(
        render(&plain(), &"3.8.0".parse().expect("a version")),
        Err(FlagError::Unknown(_))
    ));
}
