//! Where blocks are typed: a shell on a node of a bed, as somebody has one who works beside the cluster. It finds the
//! programs that pages speak of, a kubeconfig, and `charts` and `config` of this repository in its directory.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tokio::process::Command;

use super::{Block, Kind, repository};
use crate::cluster::Cluster;
use crate::components::{self, Component, EtcdVersion};
use crate::install::cache_beside;
use crate::{images, operator};

/// For all blocks that are typed in one go.
const LIMIT: Duration = Duration::from_mins(12);

/// A shell and its directory.
pub struct Desk<'a> {
    cluster: &'a Cluster,
    place: PathBuf,
    kubeconfig: PathBuf,
    replaced: Vec<(String, String)>,
}

impl<'a> Desk<'a> {
    /// The pages that scenarios play.
    pub const PAGES: &'static [&'static str] = &[
        "README.md",
        "docs/backups.md",
        "docs/cluster.md",
        "docs/disaster.md",
        "docs/how-to/adopt-volumes.md",
        "docs/how-to/back-up.md",
        "docs/how-to/change-a-running-cluster.md",
        "docs/how-to/connect-an-application.md",
        "docs/how-to/create-a-cluster.md",
        "docs/how-to/disaster-drill.md",
        "docs/how-to/hibernate.md",
        "docs/how-to/make-room.md",
        "docs/how-to/recover-lost-quorum.md",
        "docs/how-to/renew-certificates.md",
        "docs/how-to/replace-a-member.md",
        "docs/how-to/restore-elsewhere.md",
        "docs/how-to/restore-in-place.md",
        "docs/how-to/restore-to-a-time.md",
        "docs/how-to/scale.md",
        "docs/how-to/several-installations.md",
        "docs/how-to/uninstall.md",
        "docs/how-to/upgrade-etcd.md",
        "docs/how-to/upgrade-operator.md",
        "docs/how-to/wait-in-scripts.md",
        "docs/install.md",
        "docs/migration.md",
        "docs/operations.md",
        "docs/restores.md",
        "docs/troubleshooting.md",
        "docs/tutorial.md",
    ];

    /// One called `name`, whose kubectl works in this namespace unless it is told otherwise.
    pub async fn new(cluster: &'a Cluster, name: &str, namespace: &str) -> Result<Self> {
        let control_plane = cluster.control_plane();
        let place = control_plane.directory().join(name);
        let programs = place.join("bin");
        std::fs::create_dir_all(&programs)?;
        let link = |from: &Path, to: &Path| {
            std::os::unix::fs::symlink(from, to).with_context(|| format!("cannot link {}", to.display()))
        };
        for folder in ["charts", "config"] {
            link(&repository().join(folder), &place.join(folder))?;
        }
        let version = EtcdVersion::V3_6_16;
        let binary = operator::binary().await?;
        for (name, program) in [
            ("etcd-operator", binary.to_owned()),
            ("kubectl", components::find(Component::Kubectl).await?),
            ("helm", components::find(Component::Helm).await?),
            ("etcdctl", components::find(Component::Etcdctl(version)).await?),
            ("etcdutl", components::find(Component::Etcdutl(version)).await?),
        ] {
            link(&program, &programs.join(name))?;
        }
        let mut access: Value = serde_json::from_slice(&std::fs::read(control_plane.inner_kubeconfig()?)?)?;
        access["contexts"][0]["context"]["namespace"] = namespace.into();
        let kubeconfig = place.join("kubeconfig");
        std::fs::write(&kubeconfig, access.to_string())?;
        Ok(Self {
            cluster,
            place,
            kubeconfig,
            replaced: Vec::new(),
        })
    }

    /// What stands in pages for something that each reader has otherwise.
    #[must_use]
    pub fn with(mut self, written: &str, meant: &str) -> Self {
        self.replaced.push((written.to_owned(), meant.to_owned()));
        self
    }

    /// Puts a file there.
    pub fn lay(&self, name: &str, content: &str) -> Result<()> {
        let path = self.place.join(name);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Where a file of this name lies.
    pub fn path(&self, name: &str) -> PathBuf {
        self.place.join(name)
    }

    /// What the text of a page becomes here.
    pub fn told(&self, text: &str) -> String {
        let replaced = self.replaced.iter();
        replaced.fold(text.to_owned(), |text, (written, meant)| {
            text.replace(written, meant)
        })
    }

    /// What this place says, as pages have it: the reverse of [`Desk::told`].
    pub fn retold(&self, text: &str) -> String {
        let replaced = self.replaced.iter();
        replaced.fold(text.to_owned(), |text, (written, meant)| {
            text.replace(meant, written)
        })
    }

    /// Gives the image of the operator another name on every node.
    pub async fn image(&self, name: &str) -> Result<()> {
        self.copied(&format!("docker.io/library/{}", images::OPERATOR), name)
            .await
    }

    /// Gives an image that every node has another name there, as if it came from another registry.
    pub async fn copied(&self, known: &str, name: &str) -> Result<()> {
        let ctr = components::find(Component::Ctr).await?;
        let ctr = ctr.to_str().context("a path that is no text")?;
        for node in self.cluster.nodes() {
            let tag = ["--namespace", "k8s.io", "images", "tag", "--force", known, name];
            node.entry().run(ctr, &tag).await?;
        }
        Ok(())
    }

    /// Types blocks one after the other into one shell; what it says. The first command that fails without being meant to
    /// ends it, and what still runs in the background then ends, too.
    pub async fn types(&self, blocks: &[&Block]) -> Result<String> {
        let typed: Vec<String> = blocks
            .iter()
            .map(|block| typed(block, &self.told(&block.text)))
            .collect::<Result<_>>()?;
        self.runs(&typed.concat()).await
    }

    /// The same for a script of one's own.
    pub async fn runs(&self, script: &str) -> Result<String> {
        // Entering a node leads to its root.
        let begin = format!(
            "set -eEu\ncd '{}'\ntrap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n",
            self.place.display()
        );
        let script = begin + script;
        let bash = self.cluster.nodes()[0].entry().companion("bash")?;
        let mut shell: Command = bash.into();
        let own = self.place.join("bin");
        let usual = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths([own].into_iter().chain(std::env::split_paths(&usual)))?;
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"HELM_") || name.as_encoded_bytes().starts_with(b"AWS_") {
                shell.env_remove(name);
            }
        }
        shell
            .args(["-c", &script])
            .env("PATH", path)
            .env("HOME", &self.place)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("KUBECACHEDIR", cache_beside(&self.kubeconfig))
            .env("NO_PROXY", "*")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = tokio::time::timeout(LIMIT, shell.output())
            .await
            .context("it does not end")?
            .context("cannot run bash")?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let complained = String::from_utf8_lossy(&output.stderr);
        let chronicle = self.cluster.chronicle();
        chronicle.note(format_args!("typed:\n{said}{complained}"));
        let place = said.lines().rev().find_map(|line| line.strip_prefix("### "));
        ensure!(
            output.status.success(),
            "{}: {}\n{said}\n{complained}",
            place.unwrap_or("nowhere"),
            output.status
        );
        Ok(said)
    }
}

/// A block as part of a script that ends with the first command that fails without being meant to.
fn typed(block: &Block, text: &str) -> Result<String> {
    let Kind::Shell { fails } = block.kind else {
        bail!("{} is nothing to type", block.place);
    };
    let place = &block.place;
    if fails == 0 {
        return Ok(format!("echo '### {place}'\n{text}"));
    }
    Ok(format!(
        "echo '### {place}'\nrefused=0\nset +e\ntrap 'refused=$((refused + 1))' ERR\n{text}trap - ERR\nset -e\n\
         [ $refused = {fails} ] || {{ echo \"$refused commands were refused, not {fails}\"; exit 1; }}\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn run(fails: usize, text: &str) -> (bool, String) {
        let block = Block {
            place: "page.md:1".to_owned(),
            heading: String::new(),
            kind: Kind::Shell { fails },
            text: text.to_owned(),
        };
        let script = format!("set -eEu\n{}echo end\n", typed(&block, text).unwrap());
        let output = Command::new("bash").args(["-c", &script]).output().await.unwrap();
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    }

    #[tokio::test]
    async fn a_command_that_fails_ends_it_unless_just_so_many_are_meant_to() {
        assert_eq!(
            run(0, "echo a\necho b\n").await,
            (true, "### page.md:1\na\nb\nend\n".to_owned())
        );
        assert_eq!(
            run(0, "false\necho b\n").await,
            (false, "### page.md:1\n".to_owned())
        );
        assert_eq!(
            run(1, "false\necho b\n").await,
            (true, "### page.md:1\nb\nend\n".to_owned())
        );
        for more in ["echo a\n", "false\nfalse\n"] {
            let (good, said) = run(1, more).await;
            assert!(!good && said.contains("not 1"), "{said}");
        }
        // What is only waited for may fail as often as it likes.
        assert!(run(0, "n=0\nuntil [ $n = 2 ]; do n=$((n + 1)); done\n").await.0);
    }
}
