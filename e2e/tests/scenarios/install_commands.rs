//! The commands `up` and `down`, as somebody calls them: what they say, and what must not be left when they are done.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::bed_dir::BedDir;
use etcd_operator_e2e::host::Host;
use etcd_operator_e2e::operator;
use etcd_operator_e2e::scenario::Stage;
use tokio::process::Command;

/// A warm `up` takes seconds; this is for machines that also compile.
const UP_LIMIT: Duration = Duration::from_mins(5);

/// The commands `up` and `down`, with notes of their own about the bed that stays, so that one which somebody uses is
/// left alone.
pub struct Commands<'a> {
    pub stage: &'a Stage,
    /// Where their notes are.
    pub state: BedDir,
    /// This machine before.
    pub before: Host,
    /// The flag that names the operator's binary.
    pub operator: String,
}

impl<'a> Commands<'a> {
    pub async fn new(stage: &'a Stage) -> Result<Self> {
        stage.note("builds the operator, if it is not built yet");
        Ok(Self {
            stage,
            state: BedDir::create()?,
            before: Host::look().await?,
            operator: format!("--operator={}", operator::binary().await?.display()),
        })
    }

    pub async fn run(&self, arguments: &[&str], around: &[(&str, &OsStr)]) -> Result<String> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bed"));
        command
            .args(arguments)
            .env("XDG_STATE_HOME", self.state.path())
            .envs(around.iter().copied())
            .kill_on_drop(true);
        let output = tokio::time::timeout(UP_LIMIT, command.output())
            .await
            .context("it does not end")??;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let complained = String::from_utf8_lossy(&output.stderr);
        let told = format!("bed {}:\n{said}{complained}", arguments.join(" "));
        self.stage.note(&told);
        ensure!(output.status.success(), "{told}");
        Ok(said)
    }

    pub async fn up(&self, arguments: &[&str]) -> Result<String> {
        self.run(&[&["up", &self.operator], arguments].concat(), &[])
            .await
    }

    /// `up` with a context of somebody's own kubeconfig.
    pub async fn up_in(
        &self,
        context: &str,
        more: &[&str],
        kubeconfig: &Path,
        path: Option<&OsStr>,
    ) -> Result<String> {
        let usual = std::env::var_os("PATH").unwrap_or_default();
        let around = [
            ("KUBECONFIG", kubeconfig.as_os_str()),
            ("NO_PROXY", OsStr::new("*")),
            ("PATH", path.unwrap_or(&usual)),
        ];
        let context = format!("--context={context}");
        self.run(&[&["up", &self.operator, &context], more].concat(), &around)
            .await
    }

    pub fn note(&self) -> PathBuf {
        self.state.path().join("etcd-operator/bed.json")
    }

    /// Ends the bed, whatever came of the story, and looks whether anything is left.
    pub async fn end(self, played: Result<()>) -> Result<()> {
        if played.is_err() {
            let log = std::fs::read_to_string(self.note().with_file_name("bed.log"));
            self.stage
                .note(&format!("the bed's log:\n{}", log.unwrap_or_default()));
        }
        let down = self.run(&["down"], &[]).await;
        played?;
        let down = down?;
        ensure!(down.contains("the bed is gone"), "{down}");
        ensure!(down.contains("nothing is left of it"), "{down}");
        let left = Host::left_since(&self.before).await?;
        ensure!(left.is_empty(), "left: {left:#?}");
        let again = self.run(&["down"], &[]).await?;
        ensure!(again.contains("no bed stands"), "{again}");
        Ok(())
    }
}

/// The lines by which `up` says how what it made is used, as somebody types them.
pub fn exports(said: &str) -> Result<Vec<&str>> {
    let lines = said.lines().map(str::trim);
    let exports: Vec<&str> = lines.filter(|line| line.starts_with("export ")).collect();
    ensure!(exports.len() == 3, "three lines are promised:\n{said}");
    Ok(exports)
}

/// Where `up` says the kubeconfig is.
pub fn kubeconfig(said: &str) -> Result<PathBuf> {
    exports(said)?
        .iter()
        .find_map(|line| line.strip_prefix("export KUBECONFIG='")?.strip_suffix('\''))
        .map(PathBuf::from)
        .with_context(|| format!("it does not say where the kubeconfig is:\n{said}"))
}
