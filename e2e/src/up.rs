//! `up` and `down`: from nothing to an operator with accepted samples in a Kubernetes that stays, and back.
//!
//! Everything converges: what is there already is kept, what differs is brought up to date.
#![allow(clippy::print_stdout, reason = "commands speak to their user")]

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

use crate::cluster::may_have;
use crate::components::{self, Component, Group};
use crate::deadline::until;
use crate::host::Host;
use crate::install::{Kubernetes, NAMESPACE, RELEASE, SAMPLE_VERSION, TO_TRY, cache_beside};
use crate::standing::{self, Before, Standing, Turn, unless_gone, unless_interrupted};
use crate::{command, images};

/// What becomes of a bed that stands when somebody does not want to wait.
const STAYS: &str = "the bed stays; `up` goes on, `down` ends it";
/// How long the kernel may take to clear up behind a bed.
const SETTLED: Duration = Duration::from_secs(5);

/// What is asked for.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// A bed of our own with this many nodes.
    Bed(u8),
    /// A context of the user's own kubeconfig, with an image its nodes can pull, or else one that is given to them.
    Context {
        /// Its name.
        name: String,
        /// The operator's image there.
        image: Option<String>,
    },
}

/// Puts the operator, built as `binary`, into a Kubernetes, with samples.
pub async fn up(wanted: Wanted, binary: &Path) -> Result<()> {
    let began = Instant::now();
    let say = |what: &str| println!("[{:>4.0} s] {what}", began.elapsed().as_secs_f32());
    standing::clean().await?;
    let end = match wanted {
        Wanted::Bed(nodes) => {
            let (standing, kubernetes) = bed(nodes, binary, &say).await?;
            let finished = unless_gone(&standing, finish(&kubernetes, &say));
            unless_interrupted(finished, STAYS).await?;
            let mut programs = Vec::new();
            for program in [Component::Kubectl, Component::Helm] {
                let path = components::find(program).await?;
                let folder = path.parent().context("a program lies nowhere")?;
                programs.push(folder.display().to_string());
            }
            println!("\nTo use it:");
            println!("  export KUBECONFIG='{}'", standing.kubeconfig.display());
            println!("  export PATH='{}':\"$PATH\"", programs.join(":"));
            println!(
                "  export KUBECACHEDIR='{}'",
                cache_beside(&standing.kubeconfig).display()
            );
            "cargo xtask down".to_owned()
        }
        Wanted::Context { name, image } => {
            let kubernetes = Kubernetes::context(&name).await?;
            say(&format!("asking {name} for its version"));
            is_known(&kubernetes, &name).await?;
            kubernetes
                .kubectl(&["version"])
                .await
                .with_context(|| format!("the context {name} does not answer"))?;
            let image = if let Some(image) = image {
                image
            } else {
                give(&name, &images::operator(binary).await?).await?;
                images::OPERATOR.to_owned()
            };
            say("installing the chart");
            kubernetes.install(&image).await?;
            finish(&kubernetes, &say).await?;
            println!("\nTo use it:\n  kubectl config use-context '{name}'");
            format!("helm --kube-context '{name}' --namespace {NAMESPACE} uninstall {RELEASE}")
        }
    };
    println!("\nTo try:");
    for line in TO_TRY {
        println!("  {line}");
    }
    println!("\nTo end it: {end}");
    Ok(())
}

/// Refuses a context that the user's kubeconfig does not have, naming those it has.
async fn is_known(kubernetes: &Kubernetes, name: &str) -> Result<()> {
    let list = ["config", "get-contexts", "--output=name"];
    let all = kubernetes.kubectl(&list).await?;
    let all: Vec<&str> = all.lines().collect();
    let known = if all.is_empty() {
        "there is none; KUBECONFIG may lead elsewhere".to_owned()
    } else {
        format!("there are {}", all.join(", "))
    };
    ensure!(all.contains(&name), "there is no context {name}: {known}");
    Ok(())
}

async fn bed(nodes: u8, binary: &Path, say: &impl Fn(&str)) -> Result<(Standing, Kubernetes)> {
    may_have(nodes)?;
    if Standing::find()?.is_none() {
        say("building what the bed is made of, where it is not in the cache");
        components::prepare(Group::Nodes.sets()).await?;
    }
    let _turn = Turn::wait(say).await?;
    let standing = if let Some(standing) = Standing::find()? {
        standing::same_size(&standing, nodes)?;
        say("the bed stands already");
        standing
    } else {
        // Half a bed of a killed `up` may be on its way out.
        standing::stop().await?;
        standing::clean().await?;
        say("starting the bed");
        Standing::start(nodes).await?
    };
    let equipped = unless_gone(&standing, equip(standing.clone(), binary, say));
    unless_interrupted(equipped, STAYS).await
}

async fn equip(mut standing: Standing, binary: &Path, say: &impl Fn(&str)) -> Result<(Standing, Kubernetes)> {
    let kubernetes = Kubernetes::at(&standing.kubeconfig).await?;
    let archive = images::operator(binary).await?;
    let known = standing.operator.clone();
    if known.as_ref() != Some(&archive) {
        say("giving the images of the operator and of etcd to the nodes");
        standing.import(&archive).await?;
        standing.import(&images::etcd(SAMPLE_VERSION).await?).await?;
    }
    say("installing the chart");
    kubernetes.confine(NAMESPACE).await?;
    kubernetes.install(images::OPERATOR).await?;
    if known.as_ref().is_some_and(|known| *known != archive) {
        kubernetes.restart().await?;
    }
    standing.has_operator(&archive)?;
    Ok((standing, kubernetes))
}

async fn finish(kubernetes: &Kubernetes, say: &impl Fn(&str)) -> Result<()> {
    say("waiting for the manager");
    kubernetes.ready().await?;
    say("applying samples");
    let made = {
        // Two that apply the same object at the same time are in each other's way. No longer than that: `down` waits.
        let _turn = Turn::wait(say).await?;
        kubernetes.apply_samples().await?
    };
    say("waiting for the members of the sample");
    kubernetes.sample_serves().await?;
    say("waiting for a first backup of it");
    kubernetes.sample_is_backed_up().await?;
    say("ready");
    println!(
        "\nMade in namespace {NAMESPACE}: deployment/etcd-operator, {}",
        made.join(", ")
    );
    println!(
        "The sample cluster serves, and a first backup of it lies on the volume of the claim etcd-backups. How to go back \
         to it is told in docs/restores.md. This operator looks after namespace {NAMESPACE} alone; docs/install.md tells how \
         others are watched."
    );
    Ok(())
}

/// How the tool that made a local Kubernetes is told to give its nodes an image.
fn giving<'a>(context: &'a str, archive: &'a str) -> Option<Vec<&'a str>> {
    match context.split_once('-') {
        Some(("kind", name)) => Some(vec!["kind", "load", "image-archive", archive, "--name", name]),
        Some(("k3d", name)) => Some(vec!["k3d", "image", "import", archive, "--cluster", name]),
        _ if context == "minikube" => Some(vec!["minikube", "image", "load", archive]),
        _ => None,
    }
}

/// Gives an image to the nodes of a local Kubernetes, by the tool that made it.
async fn give(context: &str, archive: &Path) -> Result<()> {
    let archive = archive.to_str().context("the image's path is not UTF-8")?;
    let words = giving(context, archive).with_context(|| {
        format!(
            "{context} is none of kind, k3d or minikube, so its nodes cannot be given an image: push one and name \
             it with --image"
        )
    })?;
    let mut load = Command::new(words[0]);
    load.args(&words[1..]);
    command::succeed(load, "").await?;
    Ok(())
}

/// Takes away the bed that stays and whatever killed ones have left; with `purge` the caches too.
pub async fn down(purge: bool) -> Result<()> {
    let began = Instant::now();
    let before = Before::read()?;
    // At once, whoever is at work on it; and again for one that was started meanwhile.
    let mut stopped = standing::stop().await?;
    let _turn = Turn::wait(|what| println!("{what}")).await?;
    stopped |= standing::stop().await?;
    println!(
        "{}",
        if stopped {
            "the bed is gone"
        } else {
            "no bed stands"
        }
    );
    let cleaned = standing::clean().await?;
    standing::forget()?;
    if cleaned.beds > 0 {
        println!(
            "removed {} abandoned beds, ended {} processes",
            cleaned.beds, cleaned.processes
        );
    }
    if let Some(before) = before {
        compare(&before).await?;
    }
    println!("done in {:.1} s", began.elapsed().as_secs_f32());
    if purge {
        let cache = components::cache::directory()?;
        if cache.exists() {
            std::fs::remove_dir_all(&cache).with_context(|| format!("cannot remove {}", cache.display()))?;
            println!("removed {}", cache.display());
        }
    }
    Ok(())
}

/// Tells what is on this host that was not there before the bed. Somebody else may have made it, so it is no failure.
async fn compare(before: &Host) -> Result<()> {
    let new = async || Host::left_since(before).await;
    // The kernel takes some things away a moment after the last process that used them.
    let gone = until("nothing is left", SETTLED, || async {
        Ok(new().await?.is_empty().then_some(()))
    });
    if gone.await.is_ok() {
        println!("compared with before the bed: nothing is left of it on this machine");
        return Ok(());
    }
    println!("compared with before the bed, this is new on this machine:");
    for what in new().await? {
        println!("  {what}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_local_kubernetes_is_given_an_image_in_its_own_words() {
        let words = |context| giving(context, "a.tar").map(|words| words.join(" "));
        assert_eq!(
            words("kind-my-own").as_deref(),
            Some("kind load image-archive a.tar --name my-own")
        );
        assert_eq!(
            words("k3d-x").as_deref(),
            Some("k3d image import a.tar --cluster x")
        );
        assert_eq!(words("minikube").as_deref(), Some("minikube image load a.tar"));
        assert_eq!(words("production"), None);
    }
}
