//! The same restore by hand: three pods that stop and start, curl, etcd's own tools, and three processes of etcd, all three
//! members at once, on disks of the same kind as the pods have.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::command::printed;
use etcd_operator_e2e::components::{self, Component};
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::faults::signing;
use etcd_operator_e2e::large;
use etcd_operator_e2e::namespaces::Entry;
use etcd_operator_e2e::network;
use etcd_operator_e2e::scenario::Stage;
use futures::future::{try_join_all, try_join3};
use tokio::process::{Child, Command};

use super::LONG;

/// What the operator raises revisions by.
const BUMP: &str = "--bump-revision=1000000000";
/// Where the first one listens, and the others after it: in the network of a node, which is the bed's own.
const PORT: usize = 22379;

/// Somebody with a shell on the first node.
pub struct Hand<'a> {
    stage: &'a Stage,
    entry: Entry,
    address: Ipv4Addr,
    /// Where the object is.
    url: String,
    etcd: PathBuf,
    etcdutl: PathBuf,
}

/// When all three were so far, from the start on.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// How long it took before that to stop three bare pods on those disks and to start others, whatever they do there: who
    /// restores by hand in Kubernetes waits for that as well.
    pub pods: Duration,
    pub downloaded: Duration,
    pub restored: Duration,
    pub serving: Duration,
}

/// One member to be.
struct Member {
    name: String,
    place: PathBuf,
    client: String,
    peer: String,
}

/// One that was started.
struct Started {
    downloaded: Duration,
    restored: Duration,
    _child: Child,
}

impl<'a> Hand<'a> {
    /// One who is to restore this object.
    pub async fn at(stage: &'a Stage, url: String) -> Result<Self> {
        let node = &stage.cluster().nodes()[0];
        Ok(Self {
            stage,
            entry: node.entry(),
            address: network::node_address(node.number()),
            url,
            etcd: components::find(Component::Etcd(large::VERSION)).await?,
            etcdutl: components::find(Component::Etcdutl(large::VERSION)).await?,
        })
    }

    /// Restores it once, on disks that are there for it alone.
    pub async fn restore(&self, size: &str) -> Result<Done> {
        let names = [0, 1, 2].map(|number| format!("hand-{number}"));
        for name in &names {
            self.stage.claim(name, None, size).await?;
        }
        self.pods(&names).await?;
        self.settle().await?;
        let from = Instant::now();
        self.kubectl(&["delete", "pod"]).await?;
        self.pods(&names).await?;
        let pods = from.elapsed();
        let mut members = Vec::new();
        for (number, name) in names.into_iter().enumerate() {
            let disk = self.stage.cluster().disk(self.stage.namespace(), &name).await?;
            members.push(Member {
                place: disk.mount().join("by-hand"),
                client: format!("http://{}:{}", self.address, PORT + 2 * number),
                peer: format!("http://{}:{}", self.address, PORT + 2 * number + 1),
                name,
            });
        }
        self.settle().await?;
        let from = Instant::now();
        let [one, two, three] = [0, 1, 2].map(|number| self.make(&members, number, from));
        let (one, two, three) = try_join3(one, two, three).await?;
        let all = [one, two, three];
        let endpoints: Vec<_> = members.iter().map(|member| member.client.clone()).collect();
        answering(self.entry, &endpoints).await?;
        let serving = from.elapsed();
        let last = |moment: fn(&Started) -> Duration| all.iter().map(moment).max().unwrap_or_default();
        let done = Done {
            pods,
            downloaded: last(|one| one.downloaded),
            restored: last(|one| one.restored),
            serving,
        };
        drop(all);
        Ok(done)
    }

    /// Downloads, restores, deletes what was downloaded, and starts: one member, as fast as it can be typed.
    async fn make(&self, members: &[Member], number: usize, from: Instant) -> Result<Started> {
        let member = &members[number];
        self.run("mkdir", |command| command.arg(&member.place)).await?;
        let file = member.place.join("snapshot.db");
        self.download(&file).await?;
        let downloaded = from.elapsed();
        let data = member.place.join("data");
        let peers: Vec<_> = members
            .iter()
            .map(|member| format!("{}={}", member.name, member.peer))
            .collect();
        let which = [
            "--name".to_owned(),
            member.name.clone(),
            "--initial-cluster".to_owned(),
            peers.join(","),
            "--initial-advertise-peer-urls".to_owned(),
            member.peer.clone(),
        ];
        self.run(&self.etcdutl, |command| {
            command
                .args(["snapshot", "restore"])
                .arg(&file)
                .arg("--data-dir")
                .arg(&data)
                .args(&which)
                .args([BUMP, "--mark-compacted"])
        })
        .await?;
        let restored = from.elapsed();
        self.run("rm", |command| command.arg(&file)).await?;
        let mut etcd: Command = self.entry.companion(&self.etcd)?.into();
        let child = etcd
            .arg("--data-dir")
            .arg(&data)
            .args(&which)
            .args(["--listen-client-urls", &member.client])
            .args(["--advertise-client-urls", &member.client])
            .args(["--listen-peer-urls", &member.peer])
            .args(["--quota-backend-bytes", "8589934592"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start etcd")?;
        Ok(Started {
            downloaded,
            restored,
            _child: child,
        })
    }

    async fn download(&self, file: &Path) -> Result<()> {
        self.run("curl", |command| {
            command
                .args(["--silent", "--show-error", "--fail"])
                .args(signing())
                .arg("--output")
                .arg(file)
                .arg(&self.url)
        })
        .await
    }

    /// What was written before is on the disk, and the object is in the page cache: the same for whoever is measured next.
    pub async fn settle(&self) -> Result<()> {
        self.run("sync", |command| command).await?;
        self.download(Path::new("/dev/null")).await
    }

    /// Takes away what [`Self::restore`] has left.
    pub async fn clean(&self) -> Result<()> {
        self.kubectl(&["delete", "pod"]).await?;
        self.kubectl(&["delete", "pvc"]).await
    }

    /// Pods on these disks that do nothing; returns when they are ready.
    async fn pods(&self, names: &[String]) -> Result<()> {
        for name in names {
            self.stage.begin(name, None, Some(name), &["pause"]).await?;
        }
        for name in names {
            self.stage.ready(name).await?;
        }
        Ok(())
    }

    /// Does this to all three.
    async fn kubectl(&self, words: &[&str]) -> Result<()> {
        let names = [
            "hand-0",
            "hand-1",
            "hand-2",
            "--namespace",
            self.stage.namespace(),
        ];
        let words = [words, &names].concat();
        let output = self.stage.cluster().control_plane().kubectl(&words).await?;
        printed(output, "kubectl").map(drop)
    }

    async fn run(
        &self,
        program: impl AsRef<Path>,
        with: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Result<()> {
        let program = program.as_ref();
        let mut command: Command = self.entry.companion(program)?.into();
        with(&mut command).kill_on_drop(true);
        printed(command.output().await?, &program.display().to_string())?;
        Ok(())
    }
}

/// Waits until each of these says that it can read and write.
pub async fn answering(entry: Entry, endpoints: &[String]) -> Result<()> {
    let all = endpoints.iter().map(|endpoint| {
        let url = format!("{endpoint}/health");
        async move {
            until("a member answers", LONG, || async {
                let mut curl: Command = entry.command("curl")?.into();
                let said = curl
                    .args(["--silent", "--max-time", "2", &url])
                    .kill_on_drop(true)
                    .output()
                    .await?;
                let is_well = String::from_utf8_lossy(&said.stdout).contains(r#""health":"true""#);
                Ok(is_well.then_some(()))
            })
            .await
        }
    });
    let all = try_join_all(all).await?;
    ensure!(!all.is_empty(), "nobody is asked");
    Ok(())
}
