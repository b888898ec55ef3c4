//! Backups of real clusters into a directory: of every minor, with a member dead, with users and with certificates.

use std::path::Path;

use anyhow::{Context, Result, bail};
use etcd_operator_api::backup::{Compression, Verification};
use etcd_operator_api::contract::{BackupTask, JobOrder, Limits, Manifest, Naming, Source, StoreOrder, Task};
use etcd_operator_api::store::StorageType;
use etcd_operator_e2e::bed_dir::BedDir;
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::pki::Authority;
use etcd_operator_etcd::endpoint::{Endpoint, Identity, Limits as Waits, Tls};
use etcd_operator_etcd::flags::{ClientTls, FirstState};
use etcd_operator_etcd::membership::Role;
use etcd_operator_etcd::tool::Tools;
use etcd_operator_job::backup::Run;
use etcd_operator_job::budget::{BUFFERS, Budget};
use etcd_operator_job::members::NetworkMembers;
use etcd_operator_job::{Failure, clock, settings};
use etcd_operator_store::Policy;
use jiff::SignedDuration;
use tokio_util::sync::CancellationToken;

use crate::etcds::{Fleet, LIMIT, serving};

/// One of each minor.
const MINORS: [EtcdVersion; 6] = [
    EtcdVersion::V3_2_25,
    EtcdVersion::V3_3_27,
    EtcdVersion::V3_4_23,
    EtcdVersion::V3_5_35,
    EtcdVersion::V3_6_16,
    EtcdVersion::V3_7_3,
];

fn order(folder: &Path, source: Source, verification: Verification) -> Result<JobOrder> {
    let task = BackupTask {
        source,
        cluster_id: None,
        incarnation: None,
        naming: Naming::Periodic,
        compression: Compression::Zstd,
        keys: None,
        verification,
        deadline: clock::now().checked_add(SignedDuration::from_mins(5))?,
        limits: Limits::default(),
        allow_others: false,
    };
    Ok(JobOrder {
        version: 1,
        run: "run".to_owned(),
        owner_uid: "owner".to_owned(),
        store: StoreOrder {
            kind: StorageType::Local,
            bucket: folder.display().to_string(),
            path: "orders".to_owned(),
            ..StoreOrder::default()
        },
        task: Task::Backup(Box::new(task)),
    })
}

/// Stores a backup; fails as a Job would.
async fn backup(source: Source) -> Result<Result<Manifest, Failure>> {
    stored(source, Verification::Full, Tools::of_image()).await
}

/// Stores a backup that is restored and started by the programs of a fleet's version.
async fn rehearsed(fleet: &Fleet, source: Source) -> Result<Result<Manifest, Failure>> {
    let programs = fleet.programs().await?;
    stored(source, Verification::Restore, Tools::at(programs)).await
}

async fn stored(
    source: Source,
    verification: Verification,
    tools: Tools,
) -> Result<Result<Manifest, Failure>> {
    let bed = BedDir::create()?;
    let order = order(bed.path(), source, verification)?;
    let Task::Backup(task) = &order.task else {
        bail!("another task");
    };
    let members = match settings::read_etcd_access(&task.source) {
        Ok(way) => NetworkMembers::new(way),
        Err(failure) => return Ok(Err(failure)),
    };
    let scratch = bed.path().join("scratch");
    std::fs::create_dir(&scratch)?;
    let run = Run {
        order: &order,
        task,
        store: settings::connect_store(&order.store, Policy::default()).await?,
        members: &members,
        scratch: scratch.clone(),
        tools,
        budget: Budget::new(BUFFERS),
        stop: CancellationToken::new(),
    };
    let made = run.backup().await;
    let left: Vec<_> = std::fs::read_dir(&scratch)?.flatten().collect();
    anyhow::ensure!(left.is_empty(), "left in scratch: {left:?}");
    Ok(made)
}

fn endpoints(fleet: &Fleet, ordinals: &[u8]) -> Source {
    Source {
        endpoints: ordinals
            .iter()
            .map(|&ordinal| fleet.client_url(ordinal).to_string())
            .collect(),
        ..Source::default()
    }
}

async fn put(fleet: &Fleet, key: &str) -> Result<()> {
    let output = fleet.etcdctl(0, &["put", key, "value"]).await?;
    anyhow::ensure!(output.status.success(), "{output:?}");
    Ok(())
}

#[tokio::test]
async fn every_minor_is_backed_up_from_a_follower_and_to_its_last_page() -> Result<()> {
    for version in MINORS {
        let fleet = Fleet::new(version).await?;
        let _processes = fleet.bootstrap(3).await?;
        for number in 0..5 {
            put(&fleet, &format!("key-{number}")).await?;
        }
        let known = fleet.known(0).await?;
        let leader = known
            .leader
            .and_then(|leader| known.members.get(&leader))
            .cloned();
        let leader = leader
            .and_then(|member| member.name)
            .context("a leader with a name")?;
        let manifest = backup(endpoints(&fleet, &[0, 1, 2])).await??;
        assert_eq!(manifest.revision, known.revision.0, "{version:?}");
        assert_eq!(manifest.cluster_id, known.cluster.to_string(), "{version:?}");
        assert_ne!(manifest.member, leader, "{version:?}: the leader is spared");
        assert_eq!(manifest.etcd_version, fleet.number().to_string());
        assert_eq!(manifest.verification, "Full");
    }
    Ok(())
}

#[tokio::test]
async fn what_every_minor_restores_serves_what_was_streamed() -> Result<()> {
    for version in MINORS {
        let fleet = Fleet::new(version).await?;
        let _processes = fleet.bootstrap(1).await?;
        for number in 0..5 {
            put(&fleet, &format!("key-{number}")).await?;
            put(&fleet, "again").await?;
        }
        for arguments in [
            &["del", "key-3"][..],
            &["compact", "5"],
            &["lease", "grant", "60"],
        ] {
            let output = fleet.etcdctl(0, arguments).await?;
            anyhow::ensure!(output.status.success(), "{arguments:?}: {output:?}");
        }
        let made = rehearsed(&fleet, endpoints(&fleet, &[0])).await?;
        let manifest = made.with_context(|| format!("{version:?}"))?;
        assert_eq!(manifest.verification, "Restore", "{version:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_snapshot_with_users_or_an_alarm_is_restored_too() -> Result<()> {
    for version in [EtcdVersion::V3_4_23, EtcdVersion::V3_6_16] {
        let fleet = Fleet::new(version).await?;
        let mut config = fleet.config(0, FirstState::New, &[0]);
        // So little that a few values are too much.
        config.tuning.quota = Some(300_000);
        let mut process = fleet.start(config)?;
        fleet.serving(0, &mut process).await?;
        let large = "x".repeat(100_000);
        let mut is_full = false;
        for number in 0..30 {
            let output = fleet
                .etcdctl(0, &["put", &format!("key-{number}"), &large])
                .await?;
            is_full |= !output.status.success();
        }
        assert!(is_full, "{version:?}: no alarm was raised");
        let made = rehearsed(&fleet, endpoints(&fleet, &[0])).await?;
        assert_eq!(made?.verification, "Restore", "{version:?} with an alarm");
    }
    let fleet = Fleet::new(EtcdVersion::V3_6_16).await?;
    let _processes = fleet.bootstrap(1).await?;
    put(&fleet, "key").await?;
    for arguments in [
        &["user", "add", "root:correct horse"][..],
        &["user", "grant-role", "root", "root"],
        &["auth", "enable"],
    ] {
        let output = fleet.etcdctl(0, arguments).await?;
        anyhow::ensure!(output.status.success(), "{arguments:?}: {output:?}");
    }
    let folder = BedDir::create()?;
    std::fs::write(folder.path().join("username"), "root")?;
    std::fs::write(folder.path().join("password"), "correct horse")?;
    let source = Source {
        user: Some(folder.path().display().to_string()),
        ..endpoints(&fleet, &[0])
    };
    let made = rehearsed(&fleet, source).await??;
    assert_eq!(made.verification, "Restore", "with users");
    assert_eq!(made.member, "c-0", "users may list the members");
    Ok(())
}

#[tokio::test]
async fn an_older_image_is_refused_before_it_fails_in_the_dark() -> Result<()> {
    let (old, new) = (
        Fleet::new(EtcdVersion::V3_5_35).await?,
        Fleet::new(EtcdVersion::V3_6_16).await?,
    );
    let _processes = new.bootstrap(1).await?;
    put(&new, "key").await?;
    // The cluster agrees upon its version a little after its start.
    let failure = until("an older image is refused", LIMIT, || async {
        let failure = rehearsed(&old, endpoints(&new, &[0])).await?.err();
        Ok(failure.filter(|failure| failure.reason == "EtcdImage"))
    })
    .await?;
    assert!(!failure.is_retriable, "{failure}");
    for part in ["3.5.35", "3.6"] {
        assert!(failure.message.contains(part), "{failure}");
    }
    Ok(())
}

#[tokio::test]
async fn one_address_of_many_suffices_and_dead_members_only_cost_time() -> Result<()> {
    let fleet = Fleet::new(EtcdVersion::V3_6_16).await?;
    let mut processes = fleet.bootstrap(3).await?;
    put(&fleet, "key").await?;
    let by_one = backup(endpoints(&fleet, &[0])).await??;
    let known = fleet.known(0).await?;
    let named = known
        .members
        .values()
        .find(|member| member.name.as_deref() == Some(by_one.member.as_str()));
    let named = named.context("the member is one of the cluster's")?;
    assert_eq!(named.role, Role::Voter);
    assert_ne!(Some(named.id), known.leader, "others are found through the one");
    processes[1].kill();
    let two = backup(endpoints(&fleet, &[1, 0, 2])).await??;
    assert_ne!(two.member, "c-1");
    processes[2].kill();
    // Without a quorum nobody writes, and what is there can still be saved.
    let last = backup(endpoints(&fleet, &[1, 0, 2])).await??;
    assert_eq!(last.member, "c-0");
    processes[0].kill();
    let failure = backup(endpoints(&fleet, &[1, 0, 2])).await?.expect_err("nobody");
    assert_eq!(
        (failure.reason.as_ref(), failure.is_retriable),
        ("NoMember", true)
    );
    Ok(())
}

#[tokio::test]
async fn users_are_asked_for_their_passwords_where_etcd_wants_them() -> Result<()> {
    let fleet = Fleet::new(EtcdVersion::V3_6_16).await?;
    let _processes = fleet.bootstrap(3).await?;
    let known = fleet.known(0).await?;
    let folder = BedDir::create()?;
    std::fs::write(folder.path().join("username"), "root")?;
    std::fs::write(folder.path().join("password"), "correct horse\n")?;
    let with = |fleet: &Fleet| Source {
        user: Some(folder.path().display().to_string()),
        ..endpoints(fleet, &[0])
    };
    backup(with(&fleet))
        .await?
        .context("users are not asked for yet")?;
    for arguments in [
        &["user", "add", "root:correct horse"][..],
        &["user", "grant-role", "root", "root"],
        &["auth", "enable"],
    ] {
        let output = fleet.etcdctl(0, arguments).await?;
        anyhow::ensure!(output.status.success(), "{arguments:?}: {output:?}");
    }
    let made = backup(with(&fleet)).await??;
    let mut followers = known
        .members
        .values()
        .filter(|member| Some(member.id) != known.leader);
    assert!(
        followers.any(|follower| follower.name.as_ref() == Some(&made.member)),
        "a follower is found through the one endpoint after the login, by its name: {}",
        made.member
    );
    let nobody = backup(endpoints(&fleet, &[0])).await?.expect_err("refused");
    assert_eq!(
        (nobody.reason.as_ref(), nobody.is_retriable),
        ("Unauthorised", false),
        "{nobody}"
    );
    std::fs::write(folder.path().join("password"), "wrong horse")?;
    let wrong = backup(with(&fleet)).await?.expect_err("refused");
    assert_eq!(wrong.reason, "Unauthorised");
    assert!(!wrong.message.contains("horse"), "{wrong}");
    Ok(())
}

#[tokio::test]
async fn members_are_reached_with_certificates_as_the_older_operators_secrets_hold_them() -> Result<()> {
    let fleet = Fleet::new(EtcdVersion::V3_6_16).await?;
    let authority = Authority::new()?;
    let host = fleet.client_url(0).host().to_owned();
    let server = authority.peer("etcd", &[&host])?;
    let client = authority.client("backup", "backups")?;
    let file = |name: &str, text: &str| -> Result<String> {
        let path = fleet.bed.path().join(name);
        std::fs::write(&path, text)?;
        Ok(path.display().to_string())
    };
    let mut config = fleet.config(0, FirstState::New, &[0]);
    let url: etcd_operator_etcd::url::ClientUrl = format!("https://{host}:2379").parse()?;
    config.listen_client = vec![url.clone()];
    config.advertise_client = vec![url.clone()];
    config.client_tls = Some(ClientTls {
        certificate: file("server.crt", &server.certificate)?,
        key: file("server.key", &server.key)?,
        authority: Some(file("ca.crt", authority.certificate())?),
    });
    let mut process = fleet.start(config)?;
    let endpoint = Endpoint {
        url: url.clone(),
        tls: Some(Tls {
            authority: authority.certificate().as_bytes().to_vec(),
            identity: Some(Identity {
                certificate: client.certificate.clone().into_bytes(),
                key: client.key.clone().into_bytes(),
            }),
            server_name: None,
        }),
        limits: Waits::default(),
    };
    serving(&endpoint, &mut process).await?;
    let folder = BedDir::create()?;
    let source = Source {
        endpoints: vec![url.to_string()],
        tls: Some(folder.path().display().to_string()),
        ..Source::default()
    };
    std::fs::write(folder.path().join("etcd-client-ca.crt"), authority.certificate())?;
    let without = backup(source.clone())
        .await?
        .expect_err("a certificate is asked for");
    assert_eq!(without.reason, "ClientTLS", "{without}");
    std::fs::write(folder.path().join("etcd-client.crt"), &client.certificate)?;
    std::fs::write(folder.path().join("etcd-client.key"), &client.key)?;
    backup(source).await??;
    Ok(())
}
