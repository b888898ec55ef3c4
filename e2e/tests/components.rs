//! Every binary of the bed runs on this machine and is of the version its module pins.

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::components::{self, Component, EtcdVersion};
use tokio::process::Command;

async fn said(component: Component, arguments: &[&str]) -> Result<String> {
    let program = components::find(component).await?;
    let output = Command::new(&program)
        .args(arguments)
        .env("ETCDCTL_API", "3")
        .env("CNI_COMMAND", "VERSION")
        .output()
        .await
        .with_context(|| format!("cannot run {}", program.display()))?;
    ensure!(output.status.success(), "{component:?}: {output:?}");
    Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

/// The version that the set named `set` is pinned to, without its `v`.
fn pinned(set: &str) -> Result<String> {
    let set = components::SETS
        .iter()
        .find(|row| row.name == set)
        .context("no such set")?;
    Ok(set.version()?.trim_start_matches('v').to_owned())
}

#[tokio::test]
async fn what_nodes_run_says_the_version_its_module_pins() -> Result<()> {
    let table = [
        (Component::KubeControllerManager, "--version", "kubernetes-node"),
        (Component::KubeScheduler, "--version", "kubernetes-node"),
        (Component::Kubelet, "--version", "kubernetes-node"),
        (Component::KubeProxy, "--version", "kubernetes-node"),
        (Component::Containerd, "--version", "containerd"),
        (Component::Ctr, "--version", "containerd"),
        (Component::Runc, "--version", "runc"),
        (Component::CoreDns, "-version", "coredns"),
        (Component::Helm, "version", "helm"),
        (Component::Helm3, "version", "helm3"),
        (Component::Versitygw, "--version", "versitygw"),
    ];
    for (component, argument, set) in table {
        let said = said(component, &[argument]).await?;
        assert!(said.contains(&pinned(set)?), "{component:?}: {said}");
    }
    Ok(())
}

#[tokio::test]
async fn every_etcd_and_its_tools_say_their_version() -> Result<()> {
    for version in EtcdVersion::ALL {
        let mut answers = vec![
            said(Component::Etcd(version), &["--version"]).await?,
            said(Component::Etcdctl(version), &["version"]).await?,
        ];
        if version.has_etcdutl() {
            answers.push(said(Component::Etcdutl(version), &["version"]).await?);
        } else {
            assert!(components::find(Component::Etcdutl(version)).await.is_err());
        }
        for answer in answers {
            let first = answer.lines().next().unwrap_or_default();
            assert!(first.ends_with(&format!(": {}", version.number())), "{answer}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn network_plugins_and_the_shim_are_beside_what_is_asked_for() -> Result<()> {
    assert!(
        said(Component::CniBridge, &[])
            .await?
            .contains("supportedVersions")
    );
    for (component, neighbours) in [
        (Component::CniBridge, &["host-local", "loopback", "portmap"][..]),
        (Component::Containerd, &["containerd-shim-runc-v2", "ctr"][..]),
    ] {
        let program = components::find(component).await?;
        for neighbour in neighbours {
            assert!(program.with_file_name(neighbour).is_file(), "{neighbour}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn runc_can_restrict_system_calls_as_pods_ask_for() -> Result<()> {
    let said = said(Component::Runc, &["--version"]).await?;
    assert!(said.contains("libseccomp"), "{said}");
    Ok(())
}
