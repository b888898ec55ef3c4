//! A member in a root of its own, with nothing in it but the two programs: what an image without shell and libraries
//! has. Names resolve, or do not, as its own files say. Needs root.

use std::fs;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_operator_api::contract::{Mode, Report};
use etcd_operator_api::names::EXIT_BEFORE_ETCD;
use etcd_operator_e2e::components::{self, Component, EtcdVersion};
use etcd_operator_e2e::operator;

use crate::pods::{Pod, permit};

const HOST: &str = "c-0.c.shop.svc";

/// A pod in a root of its own, whose member is known by a name.
async fn bare(version: EtcdVersion) -> Result<(Pod, PathBuf)> {
    let mut pod = Pod::new("c-0", version)?;
    let root = pod.bed.path().join("root");
    for directory in ["etc", "opt", "tmp", "volume"] {
        fs::create_dir_all(root.join(directory))?;
    }
    let installed = Command::new(operator::binary().await?)
        .arg("install")
        .arg(root.join("opt"))
        .output()?;
    ensure!(installed.status.success(), "{installed:?}");
    fs::copy(
        components::find(Component::Etcd(version)).await?,
        root.join("etcd"),
    )?;
    fs::write(root.join("etc/hosts"), "127.0.0.1 localhost\n")?;
    fs::write(
        root.join("etc/resolv.conf"),
        "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n",
    )?;
    pod.before = vec!["chroot".to_owned(), root.display().to_string()];
    pod.programs = Some(["/opt/etcd-operator", "/etcd"]);
    pod.outside.clone_from(&root);
    pod.inside = "/".into();
    HOST.clone_into(&mut pod.host);
    Ok((pod, root))
}

fn says(words: &'static str) -> impl Fn(&Report) -> bool {
    move |report| report.detail.contains(words)
}

#[tokio::test]
async fn a_first_start_waits_until_the_members_own_name_leads_to_its_pod() -> Result<()> {
    for version in [EtcdVersion::V3_2_25, EtcdVersion::V3_6_16] {
        let (mut pod, root) = bare(version).await?;
        pod.start().await?;
        let report = pod.reported("it waits", |_| true).await?;
        pod.permit(&permit(&report, Mode::Bootstrap, &[pod.entry()]))?;
        pod.reported(
            "no such name",
            says("the permit waits: c-0.c.shop.svc does not resolve"),
        )
        .await?;
        fs::write(root.join("etc/hosts"), format!("127.0.0.9 {HOST}\n"))?;
        let words = "c-0.c.shop.svc leads to 127.0.0.9, not yet to this pod's 127.0.0.1";
        pod.reported("the name of a pod before", says(words)).await?;
        assert_eq!(pod.names()?, [""; 0], "nothing has run");
        fs::write(root.join("etc/hosts"), format!("127.0.0.1 {HOST}\n"))?;
        // Its client URL bears the name, which this test does not resolve.
        "127.0.0.1".clone_into(&mut pod.host);
        pod.serving().await.with_context(|| pod.logged())?;
    }
    Ok(())
}

#[tokio::test]
async fn a_name_server_that_says_nothing_does_not_keep_a_pod_from_ending() -> Result<()> {
    let (mut pod, root) = bare(EtcdVersion::V3_6_16).await?;
    let silent = UdpSocket::bind("127.0.0.77:53").context("cannot be a name server")?;
    fs::write(
        root.join("etc/resolv.conf"),
        "nameserver 127.0.0.77\noptions timeout:30 attempts:5\n",
    )?;
    pod.start().await?;
    let report = pod.reported("it waits", |_| true).await?;
    pod.permit(&permit(&report, Mode::Bootstrap, &[pod.entry()]))?;
    pod.reported("no answer", says("does not resolve within 2s"))
        .await?;
    let ended = pod.stop(Duration::from_secs(5)).await?;
    assert_eq!(ended.code(), Some(EXIT_BEFORE_ETCD.into()), "{ended}");
    drop(silent);
    Ok(())
}
