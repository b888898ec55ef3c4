//! Volumes that are full, cannot be written, or belong to somebody else. Mounting needs root.

use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use etcd_operator_api::contract::{Mode, Report, Verdict};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::deadline::until;

use crate::pods::{LIMIT, Pod, permit};

/// A user that owns nothing.
const NOBODY: u32 = 65_532;

/// A file system in memory in the place of a pod's volume, in a mount namespace that ends with its keeper.
struct Memory {
    keeper: Child,
    volume: String,
}

impl Memory {
    async fn mount(pod: &mut Pod, size: &str) -> Result<Self> {
        let volume = pod.volume().display().to_string();
        let script = format!("mount -t tmpfs -o size={size} tmpfs {volume} && exec sleep infinity");
        let keeper = Command::new("unshare")
            .args(["--mount", "--propagation=private", "sh", "-c", &script])
            .stdin(Stdio::null())
            .spawn()
            .context("cannot make a mount namespace")?;
        let pid = keeper.id();
        pod.bed.record(pid)?;
        until("the volume is mounted", LIMIT, || async {
            let name = fs::read_to_string(format!("/proc/{pid}/comm"))?;
            Ok((name.trim() == "sleep").then_some(()))
        })
        .await?;
        pod.before = ["nsenter", &format!("--target={pid}"), "--mount", "--"]
            .map(str::to_owned)
            .to_vec();
        pod.outside = format!("/proc/{pid}/root{}", pod.bed.path().display()).into();
        Ok(Self { keeper, volume })
    }

    fn remount(&self, options: &str) -> Result<()> {
        let mount = Command::new("nsenter")
            .arg(format!("--target={}", self.keeper.id()))
            .args([
                "--mount",
                "--",
                "mount",
                "-o",
                &format!("remount,{options}"),
                &self.volume,
            ])
            .status()?;
        ensure!(mount.success(), "cannot remount with {options}");
        Ok(())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

/// Takes all room that is left, by what no member takes for somebody's.
fn fill(pod: &Pod) -> Result<()> {
    let found = pod.volume().join("lost+found");
    fs::create_dir(&found)?;
    let mut filler = File::create(found.join("filler"))?;
    let block = vec![0; 4096];
    loop {
        match filler.write_all(&block) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

fn says(words: &'static str) -> impl Fn(&Report) -> bool {
    move |report| report.detail.contains(words)
}

#[tokio::test]
async fn a_new_member_on_a_full_volume_waits_and_starts_when_there_is_room() -> Result<()> {
    let mut pod = Pod::new("c-0", EtcdVersion::V3_6_16)?;
    let memory = Memory::mount(&mut pod, "64k").await?;
    fill(&pod)?;
    pod.start().await?;
    let report = pod.reported("it waits", |_| true).await?;
    assert_eq!(report.verdict, Verdict::Empty, "{}", report.detail);
    pod.permit(&permit(&report, Mode::Bootstrap, &[pod.entry()]))?;
    let report = pod
        .reported("it has no room", says("No space left on device"))
        .await?;
    assert_eq!(
        report.verdict,
        Verdict::Empty,
        "nothing has run: {}",
        report.detail
    );
    assert!(!pod.volume().join("operator/identity.json").exists());
    memory.remount("size=400m")?;
    pod.serving().await?;
    Ok(())
}

#[tokio::test]
async fn a_whole_member_on_a_full_volume_starts_all_the_same() -> Result<()> {
    let mut pod = Pod::new("c-0", EtcdVersion::V3_6_16)?;
    let _memory = Memory::mount(&mut pod, "200m").await?;
    pod.bootstrap().await?;
    pod.kill();
    let before = pod.identity()?;
    fill(&pod)?;
    pod.start().await?;
    until("etcd is started", LIMIT, || async {
        Ok(pod.logged().contains("this start is not counted").then_some(()))
    })
    .await?;
    until("etcd speaks", LIMIT, || async {
        Ok(pod.logged().contains("etcd-version").then_some(()))
    })
    .await?;
    assert_eq!(pod.identity()?, before);
    Ok(())
}

#[tokio::test]
async fn a_volume_that_cannot_be_written_is_waited_for() -> Result<()> {
    let mut pod = Pod::new("c-0", EtcdVersion::V3_6_16)?;
    let memory = Memory::mount(&mut pod, "400m").await?;
    memory.remount("ro")?;
    pod.start().await?;
    let report = pod.reported("it waits", |_| true).await?;
    assert_eq!(report.verdict, Verdict::Empty);
    pod.permit(&permit(&report, Mode::Bootstrap, &[pod.entry()]))?;
    pod.reported("it cannot write", says("Read-only file system"))
        .await?;
    memory.remount("rw")?;
    pod.serving().await?;
    pod.put("key", "value").await?;
    pod.kill();

    memory.remount("ro")?;
    pod.start().await?;
    let report = pod
        .reported("it cannot write", says("Read-only file system"))
        .await?;
    assert_eq!(report.verdict, Verdict::Unreadable, "never replaced for that");
    memory.remount("rw")?;
    pod.serving().await?;
    assert_eq!(pod.get("key").await?, "value", "by itself, without a permit");
    Ok(())
}

#[tokio::test]
async fn a_disk_of_another_user_is_unreadable_and_the_words_say_whose_it_is() -> Result<()> {
    let mut pod = Pod::new("c-0", EtcdVersion::V3_6_16)?;
    pod.bootstrap().await?;
    pod.kill();
    // The way to the volume is open, and so is what only tells whose it is; etcd's own data is not.
    fs::set_permissions(pod.bed.path(), Permissions::from_mode(0o755))?;
    let binary = pod.bed.path().join("etcd-operator");
    fs::copy(etcd_operator_e2e::operator::binary().await?, &binary)?;
    let mut words = pod.words().await?;
    words[0] = binary.display().to_string();
    let etcd = words.iter().position(|word| word == "--").context("no command")? + 1;
    let reachable = pod.bed.path().join("etcd");
    fs::copy(&words[etcd], &reachable)?;
    words[etcd] = reachable.display().to_string();
    pod.user = Some(NOBODY);
    pod.start_words(&words)?;
    let report = pod.reported("it waits", |_| true).await?;
    assert_eq!(report.verdict, Verdict::Unreadable, "{}", report.detail);
    for part in [
        "Permission denied",
        "belongs to user 0",
        "this process is user 65532",
    ] {
        assert!(report.detail.contains(part), "{}", report.detail);
    }
    let given = Command::new("chown")
        .args(["-R", "65532:65532"])
        .arg(pod.volume())
        .status()?;
    ensure!(given.success());
    pod.serving().await?;
    Ok(())
}
