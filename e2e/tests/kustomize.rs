//! What kubectl makes of `config`: each overlay is applied to a real API server, as are all samples.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::bed_dir::BedDir;
use etcd_operator_e2e::control_plane::{self, ControlPlane};
use serde_json::Value;

const OVERLAYS: [&str; 3] = ["default", "namespaced", "cluster-wide"];

fn config() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).join("config")
}

async fn kubectl(control_plane: &ControlPlane, arguments: &[&str]) -> Result<String> {
    let output = control_plane.kubectl(arguments).await?;
    ensure!(
        output.status.success(),
        "kubectl {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}

/// The objects an overlay is made of.
async fn built(control_plane: &ControlPlane, overlay: &Path) -> Result<Vec<Value>> {
    let overlay = overlay.to_str().context("the path is not UTF-8")?;
    let text = kubectl(control_plane, &["kustomize", overlay]).await?;
    text.split("\n---\n")
        .map(|document| Ok(serde_saphyr::from_str(document)?))
        .collect()
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

#[tokio::test]
async fn every_overlay_is_complete_and_taken_by_a_real_api_server() -> Result<()> {
    let control_plane = control_plane::shared().await?;
    for overlay in OVERLAYS {
        let place = config().join(overlay);
        let objects = built(control_plane, &place).await?;
        let is_wide = overlay == "cluster-wide";
        assert_eq!(
            of_kind(&objects, "CustomResourceDefinition").len(),
            3,
            "{overlay}"
        );
        assert_eq!(
            of_kind(&objects, "ClusterRole").len(),
            // One for the kinds and their parts, one for nodes.
            2 * usize::from(is_wide),
            "{overlay}"
        );
        assert_eq!(
            of_kind(&objects, "Role").len(),
            if is_wide { 1 } else { 2 },
            "{overlay}"
        );
        let deployment = of_kind(&objects, "Deployment");
        let arguments = &deployment[0]["spec"]["template"]["spec"]["containers"][0]["args"];
        let has_flag = arguments
            .as_array()
            .is_some_and(|list| list.contains(&"--cluster-wide".into()));
        assert_eq!(has_flag, is_wide, "{overlay}");

        // The namespace comes with it, so it is made before what is in it.
        let place = place.to_str().context("the path is not UTF-8")?;
        kubectl(
            control_plane,
            &[
                "apply",
                "--server-side",
                "--force-conflicts",
                "--kustomize",
                place,
            ],
        )
        .await?;
        let ready = [
            "wait",
            "crd",
            "--all",
            "--for=condition=Established",
            "--timeout=60s",
        ];
        kubectl(control_plane, &ready).await?;
    }
    Ok(())
}

/// What a copy of an overlay gives whose namespace and image somebody has set.
#[tokio::test]
async fn an_overlay_can_be_given_another_namespace_and_another_image() -> Result<()> {
    let control_plane = control_plane::shared().await?;
    let bed = BedDir::create()?;
    let copy = bed.path().join("config");
    let copied = Command::new("cp").arg("-r").arg(config()).arg(&copy).status()?;
    ensure!(copied.success(), "config cannot be copied");
    for overlay in ["namespaced", "cluster-wide"] {
        let place = copy.join(overlay);
        let file = place.join("kustomization.yaml");
        let text = fs::read_to_string(&file)?;
        let changed = text
            .replace("namespace: etcd-operator\n", "namespace: storage\n")
            .replace(
                "newName: etcd-operator\n",
                "newName: registry.example:5000/etcd-operator\n",
            );
        ensure!(
            changed.matches("storage").count() == 1 && changed.contains("registry.example"),
            "{changed}"
        );
        fs::write(&file, changed)?;
        let objects = built(control_plane, &place).await?;
        let namespaces: BTreeSet<&str> = objects
            .iter()
            .filter_map(|object| object["metadata"]["namespace"].as_str())
            .collect();
        assert_eq!(namespaces, BTreeSet::from(["storage"]), "{overlay}");
        assert_eq!(of_kind(&objects, "Namespace")[0]["metadata"]["name"], "storage");
        for kind in ["RoleBinding", "ClusterRoleBinding"] {
            for binding in of_kind(&objects, kind) {
                assert_eq!(
                    binding["subjects"][0]["namespace"], "storage",
                    "{overlay}: {binding}"
                );
            }
        }
        let container = &of_kind(&objects, "Deployment")[0]["spec"]["template"]["spec"]["containers"][0];
        let image = concat!("registry.example:5000/etcd-operator:", env!("CARGO_PKG_VERSION"));
        assert_eq!(container["image"], image, "{overlay}");
        let variables = container["env"].as_array().context("no variables")?;
        assert!(
            variables
                .iter()
                .any(|variable| variable["name"] == "OPERATOR_IMAGE" && variable["value"] == image),
            "{overlay}: {variables:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn every_sample_is_taken_by_a_real_api_server() -> Result<()> {
    let control_plane = control_plane::shared().await?;
    let crds = config().join("crd");
    let crds = crds.to_str().context("the path is not UTF-8")?;
    kubectl(
        control_plane,
        &["apply", "--server-side", "--force-conflicts", "--kustomize", crds],
    )
    .await?;
    let ready = [
        "wait",
        "crd",
        "--all",
        "--for=condition=Established",
        "--timeout=60s",
    ];
    kubectl(control_plane, &ready).await?;
    let mut count = 0;
    for sample in fs::read_dir(config().join("samples"))?.flatten() {
        let path = sample.path();
        let path = path.to_str().context("the path is not UTF-8")?;
        let apply = [
            "apply",
            "--dry-run=server",
            "--validate=strict",
            "--filename",
            path,
        ];
        kubectl(control_plane, &apply).await?;
        count += 1;
    }
    assert!(count >= 12, "{count}");
    Ok(())
}
