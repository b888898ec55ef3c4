//! The real binary before a real etcd: what it waits for, what it refuses, and when it starts by itself.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_operator_api::contract::{Fingerprint, Mode, Permit, RefusedImage, Report, Verdict};
use etcd_operator_api::names::EXIT_BEFORE_ETCD;
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::deadline::until;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::pods::{LIMIT, Pod, permit};

/// For what needs nothing but a moment.
const AT_ONCE: Duration = Duration::from_secs(5);

/// A permit with the IDs of what was found.
fn with_ids(report: &Report, mode: Mode, pod: &Pod) -> Permit {
    Permit {
        cluster_id: report.wal_cluster_id.clone(),
        member_id: report.wal_member_id.clone(),
        ..permit(report, mode, &[pod.entry()])
    }
}

#[tokio::test]
async fn every_etcd_waits_for_a_permit_once_and_then_restarts_without() -> Result<()> {
    for version in EtcdVersion::ALL {
        let mut pod = Pod::new("c-0", version)?;
        pod.start().await?;
        let report = pod.reported("it waits", |_| true).await?;
        assert_eq!(
            (report.verdict.clone(), report.identity.clone()),
            (Verdict::Empty, None)
        );
        assert_eq!(
            (report.pod_uid.as_str(), report.expected_incarnation),
            (pod.uid.as_str(), 1)
        );
        assert_eq!(pod.ask("GET /livez HTTP/1.1").await?.0, 200);
        assert_eq!(pod.ask("GET /readyz HTTP/1.1").await?.0, 503);
        assert!(!pod.ready().await?);
        assert_eq!(pod.names()?, [""; 0], "{version:?}: waiting leaves no trace");

        let pid = pod.pid()?;
        pod.permit(&permit(&report, Mode::Bootstrap, &[pod.entry()]))?;
        pod.serving().await?;
        assert_eq!(pod.pid()?, pid, "{version:?}: it became etcd");
        assert!(pod.is_etcd()? && pod.ready().await?, "{version:?}");
        assert_eq!(pod.report().await?, None, "{version:?}: it waits no more");
        pod.put("key", "value").await?;
        pod.kill();

        fs::remove_file(pod.permit_file())?;
        pod.start().await?;
        pod.serving().await?;
        assert_eq!(pod.get("key").await?, "value", "{version:?}");
        let identity = pod.identity()?;
        assert_eq!(
            (identity.ran, identity.starts, identity.incarnation),
            (true, 2, 1)
        );
        assert!(identity.cluster_id.is_some() && identity.member_id.is_some());
        pod.kill();

        pod.wipe()?;
        pod.permit(&permit(&report, Mode::Bootstrap, &[pod.entry()]))?;
        pod.start().await?;
        let replayed = pod
            .reported("it refuses", |report| report.detail.contains("refused"))
            .await?;
        assert_eq!(replayed.verdict, Verdict::Empty);
        assert!(
            replayed.detail.contains("another process of this pod"),
            "{}",
            replayed.detail
        );
        assert!(!pod.is_etcd()?);
    }
    Ok(())
}

#[tokio::test]
async fn etcd_of_another_minor_version_than_the_template_names_is_not_started_and_touches_nothing()
-> Result<()> {
    for version in EtcdVersion::ALL {
        let mut pod = Pod::new("c-0", version)?;
        pod.start().await?;
        let report = pod.reported("it waits", |_| true).await?;
        assert_eq!(report.refused_image, None, "{version:?}");
        pod.permit(&permit(&report, Mode::Bootstrap, &[pod.entry()]))?;
        pod.serving().await?;
        pod.put("key", "value").await?;
        pod.kill();
        let identity = pod.identity()?;

        let is_of_3_4 = version.number().starts_with("3.4.");
        let wrong = if is_of_3_4 { "3.5" } else { "3.4" };
        pod.template_minor = Some(wrong.to_owned());
        pod.start().await?;
        let report = pod.reported("it refuses its image", |_| true).await?;
        let refused = RefusedImage {
            found: version.number().to_owned(),
            expected: wrong.to_owned(),
        };
        assert_eq!(
            (report.verdict.clone(), report.refused_image.as_ref()),
            (Verdict::Whole, Some(&refused))
        );
        pod.permit(&with_ids(&report, Mode::Resume, &pod))?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(!pod.is_etcd()?, "{version:?}");
        assert_eq!(pod.identity()?, identity, "{version:?}: no start is counted");
        pod.kill();

        pod.template_minor = None;
        pod.start().await?;
        pod.serving().await?;
        assert_eq!(pod.get("key").await?, "value", "{version:?}");
    }
    Ok(())
}

#[tokio::test]
async fn members_are_turned_away_without_a_word_while_it_waits() -> Result<()> {
    let mut pod = Pod::new("c-0", EtcdVersion::V3_6_16)?;
    pod.start().await?;
    pod.reported("it waits", |_| true).await?;
    let mut stream = TcpStream::connect(("127.0.0.1", pod.ports[0])).await?;
    let mut said = Vec::new();
    tokio::time::timeout(AT_ONCE, stream.read_to_end(&mut said)).await??;
    assert_eq!(said, [0_u8; 0]);
    Ok(())
}

#[tokio::test]
async fn who_asks_slowly_or_too_much_is_left_and_others_are_answered() -> Result<()> {
    let mut pod = Pod::new("c-0", EtcdVersion::V3_6_16)?;
    pod.start().await?;
    pod.reported("it waits", |_| true).await?;
    let mut silent = Vec::new();
    for _ in 0..15 {
        silent.push(TcpStream::connect(("127.0.0.1", pod.ports[2])).await?);
    }
    assert_eq!(pod.ask("GET /livez HTTP/1.1").await?.0, 200);
    for _ in 0..40 {
        silent.push(TcpStream::connect(("127.0.0.1", pod.ports[2])).await?);
    }
    until("it is done with those who say nothing", LIMIT, || async {
        Ok(pod
            .ask("GET /livez HTTP/1.1")
            .await
            .ok()
            .filter(|(status, _)| *status == 200))
    })
    .await?;
    let long = format!("GET /{} HTTP/1.1", "x".repeat(8_000));
    let answer = pod.ask(&long).await;
    assert!(answer.is_err() || answer.is_ok_and(|(status, _)| status == 431));
    Ok(())
}

#[tokio::test]
async fn nothing_but_the_right_permit_for_this_very_process_is_used() -> Result<()> {
    let mut pod = Pod::new("c-0", EtcdVersion::V3_6_16)?;
    pod.start().await?;
    let report = pod.reported("it waits", |_| true).await?;
    let good = permit(&report, Mode::Bootstrap, &[pod.entry()]);
    let with = |change: fn(&mut Permit)| {
        let mut permit = good.clone();
        change(&mut permit);
        permit
    };
    for (wrong, words) in [
        (with(|p| p.pod_uid = "x".into()), "for the pod with UID x"),
        (with(|p| p.process = "x".into()), "for another process"),
        (
            with(|p| p.nonce = "x".into()),
            "a nonce that is no longer the present one",
        ),
        (
            with(|p| p.cluster_uid = "x".into()),
            "of the EtcdCluster with UID x",
        ),
        (
            with(|p| p.incarnation = 2),
            "for incarnation 2, and the pod for 1",
        ),
        (
            with(|p| p.mode = Mode::Resume),
            "Resume is not for a disk that is empty",
        ),
        (
            with(|p| p.mode = Mode::Adopt),
            "Adopt is not for a disk that is empty",
        ),
        (with(|p| p.mode = Mode::Join), "nobody to join"),
        (with(|p| p.mode = Mode::Prepare), "it has no restore"),
        (
            with(|p| p.mode = Mode::Swap),
            "Swap is not for a disk that is empty",
        ),
        (
            with(|p| p.mode = Mode::Recover),
            "this version cannot do what it permits: Recover",
        ),
        (with(|p| p.token.clear()), "it has no token"),
    ] {
        pod.permit(&wrong)?;
        let refused = pod
            .reported(words, |report| report.detail.contains(words))
            .await?;
        assert!(
            refused
                .detail
                .starts_with("there is nothing on the disk; the permit is refused: ")
        );
    }
    for (bytes, words) in [
        (&b"{"[..], "permit is not readable"),
        (b"{\"version\": 9}", "permit has version 9"),
        (b"null", "permit is not readable"),
    ] {
        pod.permit_bytes(bytes)?;
        pod.reported(words, |report| report.detail.contains(words))
            .await?;
    }
    assert_eq!(pod.names()?, [""; 0], "no refused permit leaves a trace");
    let now = pod.reported("it waits", |_| true).await?;
    pod.permit(&permit(&now, Mode::Bootstrap, &[pod.entry()]))?;
    pod.serving().await?;
    Ok(())
}

#[tokio::test]
async fn a_permit_that_comes_after_its_nonce_was_renewed_is_void_and_the_next_one_is_good() -> Result<()> {
    let mut pod = Pod::new("c-0", EtcdVersion::V3_6_16)?;
    pod.start().await?;
    let first = pod.reported("it waits", |_| true).await?;
    let late = permit(&first, Mode::Bootstrap, &[pod.entry()]);
    let limit = Duration::from_mins(2);
    let renewed = pod
        .reported_within("another nonce", limit, |report| report.nonce != first.nonce)
        .await?;
    assert_eq!(renewed.process, first.process);
    pod.permit(&late)?;
    let words = "no longer the present one";
    pod.reported(words, |report| report.detail.contains(words))
        .await?;
    assert!(!pod.is_etcd()?);
    pod.permit(&permit(&renewed, Mode::Bootstrap, &[pod.entry()]))?;
    pod.serving().await?;
    Ok(())
}

#[tokio::test]
async fn a_waiting_pod_ends_when_it_is_told() -> Result<()> {
    let mut pod = Pod::new("c-0", EtcdVersion::V3_6_16)?;
    pod.start().await?;
    pod.reported("it waits", |_| true).await?;
    let ended = pod.stop(AT_ONCE).await?;
    assert_eq!(ended.code(), Some(EXIT_BEFORE_ETCD.into()), "{ended}");
    Ok(())
}

/// In a network of its own with nothing in it: whatever asks somebody fails.
#[tokio::test]
async fn a_whole_member_becomes_etcd_without_any_network() -> Result<()> {
    let mut pod = Pod::new("c-0", EtcdVersion::V3_6_16)?;
    pod.bootstrap().await?;
    pod.kill();
    fs::remove_file(pod.permit_file())?;
    let waited = pod.logged().matches("waiting for a permit").count();
    pod.before = ["unshare", "--net"].map(str::to_owned).to_vec();
    pod.start().await?;
    until("it became etcd", LIMIT, || async {
        Ok(pod.is_etcd()?.then_some(()))
    })
    .await?;
    let logged = pod.logged();
    assert_eq!(logged.matches("waiting for a permit").count(), waited);
    assert_eq!(pod.identity()?.starts, 2);
    Ok(())
}

#[tokio::test]
async fn a_command_that_could_start_elsewhere_never_runs() -> Result<()> {
    let mut pod = Pod::new("c-0", EtcdVersion::V3_6_16)?;
    pod.bootstrap().await?;
    pod.kill();
    for (flag, words) in [
        ("--force-new-cluster", "must not have --force-new-cluster"),
        (
            "--initial-cluster=c-0=http://127.0.0.1:2380",
            "must not have --initial-cluster",
        ),
        ("--wal-dir=/tmp", "must not have --wal-dir"),
    ] {
        let mut command = pod.words().await?;
        command.push(flag.to_owned());
        pod.start_words(&command)?;
        let ended = pod.ended(AT_ONCE).await?;
        assert_eq!(ended.code(), Some(EXIT_BEFORE_ETCD.into()), "{ended}");
        assert!(pod.logged().contains(words), "{}", pod.logged());
    }
    Ok(())
}

#[tokio::test]
async fn a_life_that_ended_before_anybody_wrote_begins_anew_and_one_with_writes_does_not() -> Result<()> {
    let mut pod = Pod::new("c-0", EtcdVersion::V3_5_35)?;
    let first = pod.bootstrap().await?.position().await?;
    pod.kill();
    pod.incarnation = 2;
    pod.start().await?;
    let report = pod.reported("it waits", |_| true).await?;
    assert_eq!(report.verdict, Verdict::OtherIncarnation { found: 1 });
    assert_eq!(
        (report.wal_client_entries, report.wal_cluster_id),
        (Some(false), Some(first.cluster.to_string()))
    );
    let report = pod.reported("it waits", |_| true).await?;
    let anew = Permit {
        token: "another token".into(),
        ..permit(&report, Mode::Bootstrap, &[pod.entry()])
    };
    pod.permit(&anew)?;
    let second = pod.serving().await?.position().await?;
    assert_ne!(second.cluster, first.cluster);
    assert_eq!(pod.names()?, ["data", "kept-1-1", "operator"]);
    pod.put("key", "value").await?;
    pod.kill();

    pod.incarnation = 3;
    pod.start().await?;
    let report = pod
        .reported("it waits", |report| report.expected_incarnation == 3)
        .await?;
    assert_eq!(report.wal_client_entries, Some(true));
    pod.permit(&permit(&report, Mode::Bootstrap, &[pod.entry()]))?;
    let words = "may hold what clients wrote";
    pod.reported(words, |report| report.detail.contains(words))
        .await?;
    pod.kill();
    pod.incarnation = 2;
    pod.start().await?;
    pod.serving().await?;
    assert_eq!(pod.get("key").await?, "value", "the life it was goes on");
    Ok(())
}

#[tokio::test]
async fn a_disk_on_another_volume_resumes_by_permit_and_is_known_by_that_volume_then() -> Result<()> {
    let mut pod = Pod::new("c-0", EtcdVersion::V3_4_23)?;
    pod.bootstrap().await?;
    pod.put("key", "value").await?;
    pod.kill();
    pod.identify(|identity| {
        identity.fingerprint = Fingerprint([("root".to_owned(), "/elsewhere".to_owned())].into());
    })?;
    pod.start().await?;
    let report = pod.reported("it waits", |_| true).await?;
    assert_eq!(report.verdict, Verdict::Moved, "{}", report.detail);
    pod.permit(&permit(&report, Mode::Resume, &[pod.entry()]))?;
    pod.reported("IDs are missing", |report| {
        report.detail.contains("it has no clusterID")
    })
    .await?;
    pod.permit(&with_ids(&report, Mode::Resume, &pod))?;
    pod.serving().await?;
    assert_eq!(pod.get("key").await?, "value");
    pod.kill();
    pod.start().await?;
    pod.serving().await?;
    assert_eq!(pod.identity()?.starts, 3);
    Ok(())
}

#[tokio::test]
async fn a_kept_disk_is_adopted_only_if_its_members_are_this_clusters_own() -> Result<()> {
    for version in EtcdVersion::ALL {
        let mut pod = Pod::new("c-0", version)?;
        pod.bootstrap().await?;
        pod.put("key", "value").await?;
        // What it was told at its start is in the log at once, and in the database a moment later: a defragmentation
        // does not end before.
        ensure!(pod.etcdctl(&["defrag"]).await?.status.success(), "{version:?}");
        pod.kill();
        pod.identify(|identity| identity.cluster_uid = "deleted".into())?;
        pod.start().await?;
        let report = pod.reported("it waits", |_| true).await?;
        assert_eq!(report.verdict, Verdict::Foreign, "{version:?}");
        assert_eq!(report.members[0].peer_urls, [pod.peer_url()], "{version:?}");
        let elsewhere = Permit {
            initial_cluster: "c-0=http://c-0.c.another.svc:2380".into(),
            ..with_ids(&report, Mode::Adopt, &pod)
        };
        pod.permit(&elsewhere)?;
        let words = "which is not this cluster's";
        pod.reported(words, |report| report.detail.contains(words))
            .await?;
        pod.permit(&with_ids(&report, Mode::Adopt, &pod))?;
        pod.serving().await?;
        assert_eq!(pod.get("key").await?, "value", "{version:?}");
        assert_eq!(pod.identity()?.cluster_uid, crate::pods::CLUSTER);
    }
    Ok(())
}

#[tokio::test]
async fn a_waiting_member_is_small() -> Result<()> {
    let mut pod = Pod::new("c-0", EtcdVersion::V3_6_16)?;
    pod.start().await?;
    pod.reported("it waits", |_| true).await?;
    let status = fs::read_to_string(format!("/proc/{}/status", pod.pid()?))?;
    let number = |name: &str| -> Result<u64> {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .context("no such line")?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    };
    assert_eq!(number("Threads:")?, 1);
    // What it has besides the program and its tables, which are as long as an unoptimised program is.
    assert!(number("VmData:")? + number("VmStk:")? < 1 << 10, "{status}");
    Ok(())
}
