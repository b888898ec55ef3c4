//! The operator's own binary as a process of the bed: started against a control plane, looked at from outside.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;

use crate::bed_dir::BedDir;
use crate::command;
use crate::control_plane::{Access, ControlPlane, free_port};
use crate::deadline::until;
use crate::process::{ProcessId, Sent};

/// From start until ready.
const START_LIMIT: Duration = Duration::from_mins(1);
/// One request to its pages.
const PAGE_LIMIT: Duration = Duration::from_secs(5);
/// A build that finds nothing to do takes a second; one that does may take minutes.
const BUILD_LIMIT: Duration = Duration::from_mins(20);

/// The binary as the sources are now, in the profile of this test.
pub async fn binary() -> Result<&'static Path> {
    static BINARY: OnceCell<PathBuf> = OnceCell::const_new();
    let found = BINARY.get_or_try_init(|| async {
        let mut build = command::cargo();
        build
            // Of the whole workspace: asked for one package, Cargo would choose other features and build most of what it
            // needs again.
            .args([
                "build",
                "--locked",
                "--quiet",
                "--workspace",
                "--bin",
                "etcd-operator",
            ])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .kill_on_drop(true);
        let built = tokio::time::timeout(BUILD_LIMIT, build.status())
            .await
            .context("the operator was not built in time")?
            .context("cannot run cargo")?;
        ensure!(built.success(), "the operator does not build");
        // .../debug/deps/this-test and .../debug/etcd-operator.
        let this = std::env::current_exe().context("cannot tell where this test lies")?;
        let profile = this
            .parent()
            .and_then(Path::parent)
            .context("this test lies nowhere")?;
        let binary = profile.join("etcd-operator");
        ensure!(binary.is_file(), "{} was not built", binary.display());
        Ok(binary)
    });
    Ok(found.await?)
}

/// The binary as it is shipped.
pub async fn released() -> Result<PathBuf> {
    let mut build = command::cargo();
    build
        .args(["build", "--locked", "--quiet", "--release"])
        .args(["--package", "etcd-operator-manager", "--bin", "etcd-operator"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .kill_on_drop(true);
    let built = tokio::time::timeout(2 * BUILD_LIMIT, build.status())
        .await
        .context("the operator was not built in time")?
        .context("cannot run cargo")?;
    ensure!(built.success(), "the operator does not build");
    // .../debug/etcd-operator and .../release/etcd-operator.
    let profiles = binary().await?.parent().and_then(Path::parent);
    let path = profiles
        .context("the binary lies nowhere")?
        .join("release/etcd-operator");
    ensure!(path.is_file(), "{} was not built", path.display());
    Ok(path)
}

/// A running manager. Dropping it ends it; if the owner is killed, the bed's watchdog does.
#[derive(Debug)]
pub struct Operator {
    child: Child,
    id: ProcessId,
    log: PathBuf,
    health: SocketAddr,
    _bed: BedDir,
}

impl Operator {
    /// Starts `etcd-operator manager` as `name`, which is also its user in the audit log, for one namespace.
    pub async fn start(
        control_plane: &ControlPlane,
        name: &str,
        namespace: &str,
        flags: &[&str],
    ) -> Result<Self> {
        Self::start_program(binary().await?, control_plane, name, namespace, flags)
    }

    /// The same of another build of it, such as [`released`].
    pub fn start_program(
        program: &Path,
        control_plane: &ControlPlane,
        name: &str,
        namespace: &str,
        flags: &[&str],
    ) -> Result<Self> {
        let bed = BedDir::create()?;
        let log = bed.path().join("operator.log");
        let output = File::create(&log).context("cannot create the operator's log")?;
        let health = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let user = Access::admin().user(name, &["system:masters"]);
        let child = Command::new(program)
            .args(["manager", "--namespace", namespace, "--pod-name", name])
            .args(["--health-address", &health.to_string()])
            .args(flags)
            .env_clear()
            // As in its Deployment.
            .env("MALLOC_ARENA_MAX", "1")
            .env(
                "KUBECONFIG",
                control_plane.kubeconfig_with(&format!("{namespace}-{name}"), &user)?,
            )
            .stdin(Stdio::null())
            .stdout(output.try_clone().context("cannot share the log")?)
            .stderr(output)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let id = bed.record(child.id())?;
        Ok(Self {
            child,
            id,
            log,
            health,
            _bed: bed,
        })
    }

    /// Everything it has logged.
    pub fn logged(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends it a signal.
    pub fn send(&self, what: Sent) -> Result<()> {
        ensure!(
            self.id.send(what)?,
            "the operator no longer runs:\n{}",
            self.logged()
        );
        Ok(())
    }

    /// Memory of its own, in bytes, without the pages of its program.
    pub fn anonymous(&self) -> Result<u64> {
        self.id.anonymous()
    }

    /// The most that it ever was.
    pub fn most_resident(&self) -> Result<u64> {
        self.id.most_resident()
    }

    /// How long processors have worked for it.
    pub fn processor_time(&self) -> Result<Duration> {
        self.id.processor_time()
    }

    /// One of its pages: status and body.
    pub async fn page(&self, path: &str) -> Result<(u16, String)> {
        page(self.health, path).await
    }

    /// Waits until `/readyz` holds what `wanted` says.
    pub async fn until_ready(&mut self, wanted: impl Fn(u16, &str) -> bool + Copy) -> Result<String> {
        let (health, log) = (self.health, self.log.clone());
        let found = until("the operator's /readyz", START_LIMIT, || {
            let ended = self.child.try_wait();
            async move {
                if let Some(status) = ended.context("cannot ask for the operator's state")? {
                    bail!("the operator ended: {status}");
                }
                let page = page(health, "/readyz").await;
                Ok(page.ok().filter(|(code, body)| wanted(*code, body)))
            }
        });
        let (_, body) = found.await.with_context(|| {
            let log = std::fs::read_to_string(&log).unwrap_or_default();
            format!("{health}; its log:\n{log}")
        })?;
        Ok(body)
    }

    /// Waits until it has ended by itself.
    pub async fn ended(&mut self, within: Duration) -> Result<ExitStatus> {
        until("the end of the operator", within, || {
            let ended = self.child.try_wait();
            async { Ok(ended?) }
        })
        .await
        .with_context(|| self.logged())
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn page(address: SocketAddr, path: &str) -> Result<(u16, String)> {
    let fetch = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: operator\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        anyhow::Ok(answer)
    };
    let answer = tokio::time::timeout(PAGE_LIMIT, fetch)
        .await
        .with_context(|| format!("{path} is not answered"))??;
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Ok((status.context("no HTTP answer")?, body.to_owned()))
}
