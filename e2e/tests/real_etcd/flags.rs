//! Rendered flags and the table of names against every version's own parser.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use etcd_operator_api::reserved;
use etcd_operator_e2e::components::{self, Component, EtcdVersion};
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::pki::Authority;
use etcd_operator_etcd::endpoint::{Endpoint, Identity, Limits, Tls};
use etcd_operator_etcd::error::{Cause, Class};
use etcd_operator_etcd::flags::{
    ClientTls, Compaction, Config, Figures, FirstState, PeerTls, RESERVED, Tuning, claims,
};
use etcd_operator_etcd::id::Revision;
use etcd_operator_etcd::policy::Feature;
use etcd_operator_etcd::port::{Dial, Network};
use etcd_operator_etcd::version::Version;

use crate::etcds::{Fleet, LIMIT, is_taken, serving};

/// Certificates for one address: who signs, and what member and client show.
struct Certificates {
    authority: String,
    certificate: String,
    key: String,
}

fn certificates(address: &str) -> Result<Certificates> {
    let authority = Authority::new()?;
    let own = authority.peer("member", &[address])?;
    Ok(Certificates {
        authority: authority.certificate().to_owned(),
        certificate: own.certificate,
        key: own.key,
    })
}

/// Everything this version can be told.
fn everything(fleet: &Fleet, made: &Certificates) -> Result<Config> {
    let version = fleet.number();
    let has = |feature: Feature| feature.is_in(&version);
    let plain = fleet.config(0, FirstState::New, &[0]);
    let secure = |url: String| url.replace("http://", "https://");
    let file = |name: &str, content: &str| -> Result<String> {
        Ok(fleet.bed.write(name, content)?.display().to_string())
    };
    let (certificate, key) = (file("own.crt", &made.certificate)?, file("own.key", &made.key)?);
    let authority = file("ca.crt", &made.authority)?;
    let client = secure(fleet.client_url(0).to_string()).parse()?;
    let peer: etcd_operator_etcd::url::PeerUrl = secure(fleet.peer_url(0).to_string()).parse()?;
    let mut first = plain.first.clone();
    for (_, url) in first.iter_mut().flat_map(|first| &mut first.members) {
        *url = peer.clone();
    }
    Ok(Config {
        first,
        listen_peer: vec![peer.clone()],
        advertise_peer: vec![peer],
        listen_client: vec![client],
        advertise_client: vec![secure(fleet.client_url(0).to_string()).parse()?],
        listen_metrics: has(Feature::MetricsAddress)
            .then(|| fleet.metrics_url(0))
            .into_iter()
            .collect(),
        client_tls: Some(ClientTls {
            certificate: certificate.clone(),
            key: key.clone(),
            authority: Some(authority.clone()),
        }),
        peer_tls: Some(PeerTls {
            certificate,
            key,
            authority,
        }),
        tuning: Tuning {
            quota: Some(64 << 20),
            compaction: Some(if has(Feature::MetricsAddress) {
                Compaction::Revision(Revision(1000))
            } else {
                Compaction::Periodic(Duration::from_hours(2))
            }),
            snapshot_count: Some(10_000),
            heartbeat_ms: Some(50),
            election_ms: Some(500),
            max_request_bytes: Some(1 << 20),
        },
        figures: Figures::Extensive,
        check_at_start: has(Feature::CorruptAlarm),
        check_every: has(Feature::CorruptAlarm).then_some(Duration::from_hours(1)),
        check_compactions_every: has(Feature::CompactHashCheck).then_some(Duration::from_mins(1)),
        stop_serving_on_defrag: has(Feature::StopServingOnDefrag),
        max_learners: has(Feature::ManyLearners).then_some(2),
        extra: vec!["--max-wals=7".to_owned(), "--cors=*".to_owned()],
        ..plain
    })
}

#[tokio::test]
async fn every_version_starts_with_everything_it_can_be_told_and_serves_by_tls() -> Result<()> {
    for version in EtcdVersion::ALL {
        let fleet = Fleet::new(version).await?;
        let made = certificates(fleet.client_url(0).host())?;
        let config = everything(&fleet, &made)?;
        let endpoint = Endpoint {
            url: config.advertise_client[0].clone(),
            tls: Some(Tls {
                authority: made.authority.clone().into_bytes(),
                identity: Some(Identity {
                    certificate: made.certificate.clone().into_bytes(),
                    key: made.key.clone().into_bytes(),
                }),
                server_name: None,
            }),
            limits: Limits::default(),
        };
        let has_metrics = !config.listen_metrics.is_empty();
        let mut process = fleet.start(config)?;
        let client = serving(&endpoint, &mut process).await?;
        assert_eq!(client.status().await?.version, fleet.number());
        assert_eq!(
            client.membership().await.known().map(|known| known.members.len()),
            Some(1)
        );
        assert_eq!(is_taken(&fleet.metrics_url(0))?, has_metrics, "{version:?}");
        let decided = Version {
            patch: 0,
            ..fleet.number()
        };
        until("the cluster version is decided", LIMIT, || async {
            let told = client.cluster_version().await?;
            Ok(told.filter(|told| *told == decided))
        })
        .await?;
        process.check()?;
        refused_by_tls(endpoint).await?;
    }
    Ok(())
}

/// Neither a client without a certificate nor one that trusts somebody else gets through.
async fn refused_by_tls(endpoint: Endpoint) -> Result<()> {
    let tls = endpoint.tls.clone().expect("certificates");
    let nobody = Tls {
        identity: None,
        ..tls.clone()
    };
    let mistrusting = Tls {
        authority: certificates("127.0.0.1")?.authority.into_bytes(),
        ..tls.clone()
    };
    let misnamed = Tls {
        server_name: Some("elsewhere.example".to_owned()),
        ..tls
    };
    for tls in [nobody, mistrusting, misnamed] {
        let endpoint = Endpoint {
            tls: Some(tls),
            ..endpoint.clone()
        };
        // A member tells a client without a certificate only when it is asked something.
        let error = match Network.dial(&endpoint).await {
            Ok(client) => client.position().await.map(drop),
            Err(error) => Err(error),
        };
        let error = error.expect_err("a refusal");
        let is_refusal = matches!(
            error.cause,
            Cause::Tls(_) | Cause::Lost(_) | Cause::Unreachable(_)
        );
        ensure!(is_refusal, "{error}");
        // What a member says of a client certificate can get lost with the connection.
        ensure!(matches!(error.class(), Class::Tls | Class::Transient), "{error}");
    }
    Ok(())
}

#[tokio::test]
async fn the_table_of_names_is_what_every_version_itself_says() -> Result<()> {
    for version in EtcdVersion::ALL {
        let program = components::find(Component::Etcd(version)).await?;
        let mut wrong = Vec::new();
        for (name, is_claimed) in claims(&version.number().parse()?) {
            // Flags are read in order, so that the second one keeps etcd from starting where the first is known.
            let output = Command::new(&program)
                .args([format!("--{name}=1"), "--no-such-flag".to_owned()])
                .env_clear()
                .output()?;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            ensure!(
                !output.status.success(),
                "{version:?} started with --no-such-flag"
            );
            let is_there = !said.contains(&format!("not defined: -{name}\n"));
            // 3.6 takes old names besides the new ones.
            let is_old_name = is_there && name.starts_with("experimental-");
            if is_there != is_claimed && !(is_old_name && version.number().starts_with("3.6.")) {
                wrong.push(name);
            }
        }
        assert!(wrong.is_empty(), "{version:?}: {wrong:?}");
    }
    Ok(())
}

#[test]
fn admission_refuses_the_flags_that_the_renderer_refuses() {
    let admission: Vec<&str> = reserved::FLAGS.iter().map(|(name, _)| *name).collect();
    assert_eq!(admission, RESERVED);
}
