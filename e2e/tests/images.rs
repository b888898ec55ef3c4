//! The images of the bed's containers, imported into a real containerd and run by a real runc.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::bed_dir::BedDir;
use etcd_operator_e2e::components::{self, Component, EtcdVersion};
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::images;
use tokio::process::{Child, Command};

const SOON: Duration = Duration::from_mins(1);

/// A containerd without the kubelet's interface, which needs no network.
struct Containerd {
    /// Its containers' alone, and the name of their control groups, which go with the bed of that name.
    namespace: String,
    ctr: PathBuf,
    runc: PathBuf,
    socket: PathBuf,
    // In this order: what runs in a directory ends before the directory goes.
    _process: Child,
    _bed: BedDir,
}

impl Containerd {
    async fn start() -> Result<Self> {
        let program = components::find(Component::Containerd).await?;
        let bed = BedDir::create()?;
        let root = bed.path();
        let socket = root.join("containerd.sock");
        let config = bed.write(
            "containerd.toml",
            format!(
                "version = 3\n\
                 root = '{root}/root'\n\
                 state = '{root}/state'\n\
                 disabled_plugins = ['io.containerd.grpc.v1.cri', 'io.containerd.cri.v1.images', \
                 'io.containerd.cri.v1.runtime']\n\
                 [grpc]\n\
                 address = '{socket}'\n",
                root = root.display(),
                socket = socket.display(),
            ),
        )?;
        // The shim is looked for on the PATH.
        let beside = program.parent().context("a program is in a directory")?;
        let mut path = beside.as_os_str().to_owned();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        let log = std::fs::File::create(root.join("containerd.log"))?;
        let process = Command::new(&program)
            .arg("--config")
            .arg(config)
            .env("PATH", path)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        bed.record(process.id().context("it was just started")?)?;
        let containerd = Self {
            namespace: root
                .file_name()
                .context("a bed has a name")?
                .to_string_lossy()
                .into_owned(),
            ctr: components::find(Component::Ctr).await?,
            runc: components::find(Component::Runc).await?,
            socket,
            _process: process,
            _bed: bed,
        };
        until("an answer of containerd", SOON, || async {
            let output = containerd.ctr(&["version"]).await?;
            Ok(output.status.success().then_some(()))
        })
        .await?;
        Ok(containerd)
    }

    async fn ctr(&self, arguments: &[&str]) -> Result<Output> {
        Ok(Command::new(&self.ctr)
            .arg("--address")
            .arg(&self.socket)
            .args(["--namespace", &self.namespace])
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .await?)
    }

    async fn import(&self, archive: &Path) -> Result<()> {
        let archive = archive.to_str().context("the cache has a readable path")?;
        let output = self.ctr(&["images", "import", archive]).await?;
        ensure!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }

    /// Runs a command in a container of its own.
    async fn run(&self, reference: &str, command: &[&str]) -> Result<Output> {
        let id = format!(
            "c{}",
            command
                .join("-")
                .replace(|c: char| !c.is_ascii_alphanumeric(), "")
        );
        let runc = self.runc.to_str().context("the cache has a readable path")?;
        let head = [
            "run",
            "--rm",
            "--runc-binary",
            runc,
            "--user",
            "65532:65532",
            "--read-only",
        ];
        let container = [reference, &id];
        self.ctr(&[&head[..], &container, command].concat()).await
    }
}

#[tokio::test]
async fn every_etcd_runs_from_its_image_without_rights_and_finds_no_shell_there() -> Result<()> {
    let containerd = Containerd::start().await?;
    for version in EtcdVersion::ALL {
        containerd.import(&images::etcd(version).await?).await?;
        let reference = images::etcd_reference(version);

        let output = containerd.run(&reference, &["etcd", "--version"]).await?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            said.contains(&format!("etcd Version: {}", version.number())),
            "{reference}: {said}{}",
            String::from_utf8_lossy(&output.stderr)
        );

        let output = containerd.run(&reference, &["/bin/sh", "-c", "true"]).await?;
        assert!(!output.status.success(), "{reference} has a shell");
    }
    Ok(())
}

#[tokio::test]
async fn what_pods_of_the_bed_need_is_imported_under_the_names_they_ask_for() -> Result<()> {
    let containerd = Containerd::start().await?;
    for archive in images::base().await? {
        containerd.import(&archive).await?;
    }
    containerd.import(&images::s3().await?).await?;
    let output = containerd.ctr(&["images", "list", "--quiet"]).await?;
    let listed = String::from_utf8(output.stdout)?;
    for reference in [images::PAUSE, images::DNS, images::TOOLS, images::S3] {
        assert!(listed.lines().any(|line| line == reference), "{listed}");
    }

    for (reference, command) in [
        (images::S3, ["/usr/local/bin/versitygw", "--version"]),
        (images::DNS, ["/usr/local/bin/coredns", "-version"]),
    ] {
        let output = containerd.run(reference, &command).await?;
        assert!(output.status.success(), "{reference}: {output:?}");
    }

    let output = containerd.run(images::TOOLS, &["probe", "space", "/"]).await?;
    let space: serde_json::Value =
        serde_json::from_slice(&output.stdout).with_context(|| format!("{output:?}"))?;
    assert!(space["bytes"].as_u64() > Some(0), "{space}");

    let output = containerd
        .run(images::TOOLS, &["probe", "write", "/x", "1"])
        .await?;
    assert!(!output.status.success(), "a read-only root was written to");
    Ok(())
}

#[tokio::test]
async fn an_operator_that_would_need_libraries_is_refused() -> Result<()> {
    let error = images::operator(Path::new("/bin/sh")).await.unwrap_err();
    assert!(error.to_string().contains("not linked statically"), "{error:#}");
    Ok(())
}

#[tokio::test]
async fn an_operator_runs_from_its_image_by_its_bare_name() -> Result<()> {
    let containerd = Containerd::start().await?;
    // This very test stands in for it: static as the operator is, and it lists its tests when asked.
    let archive = images::operator(&std::env::current_exe()?).await?;
    containerd.import(&archive).await?;
    let reference = format!("docker.io/library/{}", images::OPERATOR);
    let output = containerd.run(&reference, &["etcd-operator", "--list"]).await?;
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.contains("an_operator_runs_from_its_image_by_its_bare_name"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
