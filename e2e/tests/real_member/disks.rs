//! Disks that every etcd really leaves: what they are found to be, as they are and after what can happen to them.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use etcd_operator_api::contract::{self, ListedMember, Prepared, Verdict};
use etcd_operator_e2e::components::{self, Component, EtcdVersion};
use etcd_operator_e2e::deadline::until;
use etcd_operator_etcd::version::Minor;
use etcd_operator_member::disk::{self, Depth};
use etcd_operator_member::fingerprint::Surroundings;
use etcd_operator_member::log::SegmentName;
use etcd_operator_member::verdict::{Expected, Finding, judge};
use etcd_operator_member::view::{DiskView, LogEnd, LogHead};
use etcd_operator_member::volume::Volume;

use crate::pods::{CLUSTER, LIMIT, Pod};

fn read(volume: &Path) -> (DiskView, Finding) {
    let expected = Expected {
        cluster_uid: CLUSTER.to_owned(),
        member: "c-0".to_owned(),
        incarnation: 1,
    };
    let disk = disk::read(&Volume::at(volume), &Surroundings::default(), Depth::Report);
    let finding = judge(&disk, &expected);
    let at_start = disk::read(&Volume::at(volume), &Surroundings::default(), Depth::Start);
    assert_eq!(judge(&at_start, &expected), finding, "whatever is read besides");
    (disk, finding)
}

fn end(disk: &DiskView) -> LogEnd {
    disk.store().and_then(|store| store.end).expect("an end")
}

fn segments(volume: &Path) -> Result<Vec<PathBuf>> {
    let mut all: Vec<PathBuf> = fs::read_dir(volume.join("data/member/wal"))?
        .flatten()
        .filter(|entry| SegmentName::read(&entry.file_name().to_string_lossy()).is_some())
        .map(|entry| entry.path())
        .collect();
    all.sort();
    Ok(all)
}

/// Inverts bytes of a file.
fn flip(path: &Path, place: u64, count: usize) -> Result<()> {
    let mut file = File::options().read(true).write(true).open(path)?;
    let mut bytes = vec![0; count];
    file.seek(SeekFrom::Start(place))?;
    file.read_exact(&mut bytes)?;
    for byte in &mut bytes {
        *byte = !*byte;
    }
    file.seek(SeekFrom::Start(place))?;
    Ok(file.write_all(&bytes)?)
}

/// What a copy of a volume is found to be after something was done to it.
fn after(volume: &Path, what: impl FnOnce(&Path) -> Result<()>) -> Result<Finding> {
    let copy = volume.with_file_name("copy");
    let copied = Command::new("cp").arg("-a").arg(volume).arg(&copy).status()?;
    ensure!(copied.success());
    what(&copy)?;
    let (_, finding) = read(&copy);
    fs::remove_dir_all(copy)?;
    Ok(finding)
}

#[tokio::test]
async fn what_every_etcd_leaves_is_whole_and_its_log_tells_whose_it_is_and_how_far_it_came() -> Result<()> {
    for version in EtcdVersion::ALL {
        let mut pod = Pod::new("c-0", version)?;
        let client = pod.bootstrap().await?;
        let status = client.status().await?;
        // In order, so that the database has what the log has.
        pod.stop(LIMIT).await?;
        let (disk, finding) = read(&pod.volume());
        assert_eq!(finding.verdict, Verdict::Whole, "{version:?}: {}", finding.detail);
        let store = disk.store().context("no data")?;
        let position = status.position;
        let wanted = LogHead {
            cluster: position.cluster,
            member: position.member,
        };
        assert_eq!(store.head, Ok(wanted), "{version:?}");
        assert_eq!(end(&disk).term, position.term, "{version:?}");
        assert!(
            end(&disk).index >= status.raft_index,
            "{version:?}: {:?}",
            end(&disk)
        );
        assert!(!end(&disk).has_client_entries, "{version:?}: nobody wrote");
        let own = ListedMember {
            id: position.member.to_string(),
            name: "c-0".into(),
            peer_urls: vec![pod.peer_url()],
        };
        assert_eq!(store.members, [own], "{version:?}");

        pod.start().await?;
        pod.serving().await?;
        pod.put("key", "value").await?;
        let status = pod.serving().await?.status().await?;
        pod.kill();
        let (disk, finding) = read(&pod.volume());
        assert_eq!(finding.verdict, Verdict::Whole, "{version:?}: {}", finding.detail);
        assert!(end(&disk).has_client_entries, "{version:?}: somebody wrote");
        assert!(end(&disk).index >= status.raft_index, "{version:?}");
    }
    Ok(())
}

/// How etcd ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Killed,
    Stopped,
}

/// Writes with what runs and ends it: what it leaves is whole and as far as it came.
async fn leaves_whole(pod: &mut Pod, ending: Ending, what: &str) -> Result<()> {
    let client = pod.serving().await?;
    pod.put("key", what).await?;
    let status = client.status().await?;
    assert_eq!(status.version, pod.number(), "{what}");
    match ending {
        Ending::Killed => pod.kill(),
        Ending::Stopped => {
            pod.stop(LIMIT).await?;
        }
    }
    let (disk, finding) = read(&pod.volume());
    assert_eq!(finding.verdict, Verdict::Whole, "{what}: {}", finding.detail);
    assert!(end(&disk).index >= status.raft_index, "{what}");
    Ok(())
}

/// Waits until the cluster has the minor version of its only member: the next one may not read the log before that.
async fn has_risen(pod: &mut Pod) -> Result<()> {
    let client = pod.serving().await?;
    let own = Minor::of(&pod.number());
    until("the cluster version has risen", LIMIT, || async {
        let cluster = client.cluster_version().await?;
        Ok((cluster.as_ref().and_then(Minor::of) == own).then_some(()))
    })
    .await
}

/// On its way up over every minor version, and back where etcd can.
#[tokio::test]
async fn files_that_several_minor_versions_wrote_are_whole() -> Result<()> {
    let mut pod = Pod::new("c-0", EtcdVersion::V3_2_25)?;
    pod.bootstrap().await?;
    has_risen(&mut pod).await?;
    leaves_whole(&mut pod, Ending::Killed, "3.2").await?;
    for version in [
        EtcdVersion::V3_3_27,
        EtcdVersion::V3_4_23,
        EtcdVersion::V3_5_35,
        EtcdVersion::V3_6_16,
        EtcdVersion::V3_7_3,
    ] {
        pod.version = version;
        pod.start().await?;
        has_risen(&mut pod).await?;
        leaves_whole(&mut pod, Ending::Killed, &format!("up to {}", version.number())).await?;
    }
    for version in [EtcdVersion::V3_6_16, EtcdVersion::V3_5_35] {
        pod.start().await?;
        let client = pod.serving().await?;
        let minor = version.number().rsplit_once('.').context("no patch")?.0;
        let target = format!("{minor}.0");
        // The earlier downgrade ends some time after the last member has restarted.
        until("the downgrade is enabled", LIMIT, || async {
            let enabled = pod.etcdctl(&["downgrade", "enable", &target]).await?;
            Ok(enabled.status.success().then_some(()))
        })
        .await?;
        until(
            "cluster and files are of the lower minor version",
            LIMIT,
            || async {
                let (status, cluster) = (client.status().await?, client.cluster_version().await?);
                let is_stored = status.storage_version.as_ref() == Some(&target);
                Ok((is_stored && cluster.is_some_and(|cluster| cluster.to_string() == target)).then_some(()))
            },
        )
        .await?;
        // The lower version is on the disk only some time after it is told: a kill would leave the higher one.
        leaves_whole(&mut pod, Ending::Stopped, &format!("before {}", version.number())).await?;
        pod.version = version;
        pod.start().await?;
        leaves_whole(&mut pod, Ending::Killed, &format!("down to {}", version.number())).await?;
    }
    Ok(())
}

#[tokio::test]
async fn damage_loss_and_copies_of_real_disks_are_found() -> Result<()> {
    for version in EtcdVersion::ALL {
        let mut pod = Pod::new("c-0", version)?;
        pod.bootstrap().await?;
        pod.put("key", "value").await?;
        pod.kill();
        let volume = pod.volume();
        let database = |volume: &Path| volume.join("data/member/snap/db");
        let check = |what: &str, wanted: &Verdict, act: &dyn Fn(&Path) -> Result<()>| -> Result<()> {
            let finding = after(&volume, act)?;
            assert_eq!(
                finding.verdict, *wanted,
                "{version:?}, {what}: {}",
                finding.detail
            );
            Ok(())
        };
        check("copied file by file", &Verdict::Moved, &|_| Ok(()))?;
        check("the log's head overwritten", &Verdict::Damaged, &|copy| {
            flip(segments(copy)?.last().context("no log")?, 8, 40)
        })?;
        check("the log cut to nothing", &Verdict::Damaged, &|copy| {
            let log = File::options()
                .write(true)
                .open(segments(copy)?.last().context("no log")?)?;
            Ok(log.set_len(0)?)
        })?;
        check(
            "the database's first pages overwritten",
            &Verdict::Damaged,
            &|copy| flip(&database(copy), 0, 8192),
        )?;
        check(
            "one of the database's beginnings overwritten",
            &Verdict::Moved,
            &|copy| flip(&database(copy), 0, 80),
        )?;
        check("the database cut", &Verdict::Damaged, &|copy| {
            Ok(File::options().write(true).open(database(copy))?.set_len(8192)?)
        })?;
        check("the database gone", &Verdict::Damaged, &|copy| {
            Ok(fs::remove_file(database(copy))?)
        })?;
        check("the log gone", &Verdict::Unborn, &|copy| {
            Ok(fs::remove_dir_all(copy.join("data/member/wal"))?)
        })?;
        check("the data gone", &Verdict::Unborn, &|copy| {
            Ok(fs::remove_dir_all(copy.join("data"))?)
        })?;
        check("the identity gone", &Verdict::Foreign, &|copy| {
            Ok(fs::remove_dir_all(copy.join("operator"))?)
        })?;
        check("all gone", &Verdict::Empty, &|copy| {
            fs::remove_dir_all(copy.join("data"))?;
            Ok(fs::remove_dir_all(copy.join("operator"))?)
        })?;
        check(
            "all gone, and a file of somebody else",
            &Verdict::Foreign,
            &|copy| {
                fs::remove_dir_all(copy.join("data"))?;
                fs::remove_dir_all(copy.join("operator"))?;
                Ok(fs::write(copy.join("ledger-2026.txt"), "")?)
            },
        )?;
        check("a file of somebody else beside it", &Verdict::Moved, &|copy| {
            Ok(fs::write(copy.join("ledger-2026.txt"), "")?)
        })?;
    }
    Ok(())
}

#[tokio::test]
async fn an_identity_that_is_torn_or_from_the_future_proves_nothing() -> Result<()> {
    let mut pod = Pod::new("c-0", EtcdVersion::V3_6_16)?;
    pod.bootstrap().await?;
    pod.kill();
    let whole = fs::read(pod.volume().join("operator/identity.json"))?;
    for length in [0, 1, whole.len() / 2, whole.len() - 1] {
        let finding = after(&pod.volume(), |copy| {
            Ok(fs::write(copy.join("operator/identity.json"), &whole[..length])?)
        })?;
        assert_eq!(finding.verdict, Verdict::Unreadable, "{length}");
        assert!(
            finding.detail.contains("identity.json: identity is not readable"),
            "{}",
            finding.detail
        );
    }
    let finding = after(&pod.volume(), |copy| {
        let newer = String::from_utf8(whole.clone())?.replace("\"version\":1", "\"version\":9");
        Ok(fs::write(copy.join("operator/identity.json"), newer)?)
    })?;
    assert_eq!(finding.verdict, Verdict::Unreadable);
    assert!(finding.detail.contains("has version 9"), "{}", finding.detail);
    let finding = after(&pod.volume(), |copy| {
        Ok(fs::write(copy.join("operator/identity.json.new"), &whole[..20])?)
    })?;
    assert_eq!(
        finding.verdict,
        Verdict::Moved,
        "a torn write beside it is nothing"
    );
    Ok(())
}

/// A directory stands for a file that cannot be read: opening it works, reading fails.
#[tokio::test]
async fn what_cannot_be_read_is_not_taken_for_damage_or_loss() -> Result<()> {
    let mut pod = Pod::new("c-0", EtcdVersion::V3_6_16)?;
    pod.bootstrap().await?;
    pod.kill();
    let newest = segments(&pod.volume())?.pop().context("no log")?;
    let newest = newest.strip_prefix(pod.volume())?;
    for file in [
        newest,
        Path::new("data/member/snap/db"),
        Path::new("operator/identity.json"),
    ] {
        let finding = after(&pod.volume(), |copy| {
            fs::remove_file(copy.join(file))?;
            Ok(fs::create_dir(copy.join(file))?)
        })?;
        assert_eq!(
            finding.verdict,
            Verdict::Unreadable,
            "{}: {}",
            file.display(),
            finding.detail
        );
        assert!(finding.detail.contains("Is a directory"), "{}", finding.detail);
    }
    let (_, finding) = read(&pod.bed.path().join("not mounted"));
    assert_eq!(finding.verdict, Verdict::Unreadable, "{}", finding.detail);
    Ok(())
}

#[tokio::test]
async fn a_join_that_found_nobody_leaves_an_unborn_disk() -> Result<()> {
    for version in EtcdVersion::ALL {
        let mut pod = Pod::new("c-0", version)?;
        pod.bootstrap().await?;
        pod.kill();
        fs::remove_dir_all(pod.volume().join("data"))?;
        let mut words = pod.words().await?;
        words.drain(..=words.iter().position(|word| word == "--").context("no command")?);
        let nobody = format!("{},c-1=http://127.0.0.1:1", pod.entry());
        words.push(format!("--initial-cluster={nobody}"));
        words.push("--initial-cluster-state=existing".to_owned());
        pod.start_words(&words)?;
        let status = pod.ended(LIMIT).await?;
        assert!(!status.success(), "{version:?}: {}", pod.logged());
        assert!(pod.volume().join("data/member/snap/db").exists(), "{version:?}");
        let (_, finding) = read(&pod.volume());
        assert_eq!(
            finding.verdict,
            Verdict::Unborn,
            "{version:?}: {}",
            finding.detail
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_log_of_several_segments_is_read_to_its_end() -> Result<()> {
    let mut pod = Pod::new("c-0", EtcdVersion::V3_6_16)?;
    pod.bootstrap().await?;
    let etcdctl = components::find(Component::Etcdctl(pod.version)).await?;
    let value = vec![b'x'; 1_400_000];
    for number in 0..50 {
        let mut put = Command::new(&etcdctl)
            .env_clear()
            .arg(format!("--endpoints={}", pod.client_url()))
            .args(["put", &number.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        put.stdin.take().context("no input")?.write_all(&value)?;
        ensure!(put.wait()?.success());
    }
    let status = pod.serving().await?.status().await?;
    pod.kill();
    assert!(segments(&pod.volume())?.len() > 1);
    let (disk, finding) = read(&pod.volume());
    assert_eq!(finding.verdict, Verdict::Whole, "{}", finding.detail);
    assert!(end(&disk).index >= status.raft_index && end(&disk).term == status.position.term);
    assert!(end(&disk).has_client_entries);
    Ok(())
}

/// Restores a snapshot of a pod into a directory.
async fn restore(pod: &Pod, directory: &Path) -> Result<()> {
    let snapshot = pod.bed.path().join("snapshot");
    let saved = pod
        .etcdctl(&["snapshot", "save", &snapshot.display().to_string()])
        .await?;
    ensure!(saved.status.success(), "{saved:?}");
    let tool = if pod.version.has_etcdutl() {
        Component::Etcdutl(pod.version)
    } else {
        Component::Etcdctl(pod.version)
    };
    let restored = Command::new(components::find(tool).await?)
        .env_clear()
        .env("ETCDCTL_API", "3")
        .args(["snapshot", "restore"])
        .arg(&snapshot)
        .arg(format!("--data-dir={}", directory.display()))
        .args(["--name=c-0", "--initial-cluster=c-0=http://127.0.0.1:2380"])
        .arg("--initial-advertise-peer-urls=http://127.0.0.1:2380")
        .output()?;
    ensure!(restored.status.success(), "{restored:?}");
    Ok(())
}

#[tokio::test]
async fn a_restored_directory_counts_when_it_is_complete_and_marked_and_half_a_one_never_does() -> Result<()>
{
    for version in [
        EtcdVersion::V3_4_23,
        EtcdVersion::V3_5_35,
        EtcdVersion::V3_6_16,
        EtcdVersion::V3_7_3,
    ] {
        let mut pod = Pod::new("c-0", version)?;
        pod.bootstrap().await?;
        pod.put("key", "value").await?;
        let side = pod.bed.path().join("restored-uid");
        restore(&pod, &side).await?;
        pod.kill();
        let volume = pod.bed.path().join("new");
        fs::create_dir_all(volume.join("operator"))?;
        fs::rename(&side, volume.join("restored-uid"))?;
        let (_, finding) = read(&volume);
        assert_eq!(
            finding.verdict,
            Verdict::Empty,
            "{version:?}: without a mark it is nothing"
        );

        let mark = |incarnation| {
            contract::write(&Prepared {
                version: 1,
                restore_uid: "uid".into(),
                object_sha256: "00".into(),
                cluster_id: None,
                member_id: None,
                incarnation,
                directory: "restored-uid".into(),
            })
        };
        fs::write(volume.join("operator/prepared.json"), mark(1))?;
        let (_, finding) = read(&volume);
        assert!(
            matches!(finding.verdict, Verdict::Prepared { .. }),
            "{version:?}: {finding:?}"
        );
        fs::write(volume.join("operator/prepared.json"), mark(2))?;
        assert_eq!(read(&volume).1.verdict, Verdict::Empty, "it is for another life");

        fs::rename(volume.join("restored-uid"), volume.join("data"))?;
        let (disk, finding) = read(&volume);
        assert_eq!(
            finding.verdict,
            Verdict::Foreign,
            "{version:?}: nobody says whose it is"
        );
        let store = disk.store().context("no data")?;
        assert!(store.whole().is_ok(), "{version:?}: {store:?}");
        assert!(
            end(&disk).has_client_entries,
            "{version:?}: what is in the database may be anybody's"
        );

        fs::remove_dir_all(volume.join("data/member/wal"))?;
        assert_eq!(
            read(&volume).1.verdict,
            Verdict::Foreign,
            "{version:?}: cut short"
        );
        fs::copy(
            pod.volume().join("operator/identity.json"),
            volume.join("operator/identity.json"),
        )?;
        assert_eq!(read(&volume).1.verdict, Verdict::Unborn, "{version:?}: cut short");
    }
    Ok(())
}
