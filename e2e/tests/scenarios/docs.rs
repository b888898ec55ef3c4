//! The pages as somebody follows them who has nothing else: each command that they show is typed, in their order.
#![allow(clippy::print_stdout, reason = "how long it takes is what is promised")]

mod moving;
mod trouble;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use etcd_operator_e2e::book::{Block, Desk, Page, repository};
use etcd_operator_e2e::command::{self, printed};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::emulator::{BUCKET, Emulator, Speech};
use etcd_operator_e2e::faults::{CREDENTIALS, REGION, profile};
use etcd_operator_e2e::images;
use etcd_operator_e2e::install::{Kubernetes, NAMESPACE, SAMPLE_VERSION};
use etcd_operator_e2e::scenario::{Bed, Scenario, Stage};
use serde_json::json;

use crate::install::{prepared, sampled};

/// The image in pages, and the same in kustomizations.
const NAMES: [&str; 2] = [
    "registry.example.com/etcd-operator:0.2.0",
    "docker.io/library/etcd-operator:0.2.0",
];
/// The image of etcd in the registry of somebody without a way to the internet.
const FAR: &str = "registry.example.com/etcd:v3.6.16";
/// Thirty-two bytes.
const KEY: &str = "0123456789abcdef0123456789abcdef";

/// Both new clusters hold what the page about clusters has written into the first.
const READ_COPIES: &str = r"
for name in orders-copy orders-eu; do
  kubectl exec $name-0 --container etcd -- etcdctl get greeting
done
";

/// Pages about a cluster that serves, each with the clusters that the one before has left.
const CLUSTERS: [&str; 9] = [
    "docs/how-to/create-a-cluster.md",
    "docs/how-to/connect-an-application.md",
    "docs/how-to/scale.md",
    "docs/how-to/hibernate.md",
    "docs/how-to/change-a-running-cluster.md",
    "docs/how-to/replace-a-member.md",
    "docs/how-to/adopt-volumes.md",
    "docs/how-to/wait-in-scripts.md",
    "docs/cluster.md",
];
/// Pages about a cluster that is rolled back.
const RESTORES: [&str; 3] = [
    "docs/how-to/restore-to-a-time.md",
    "docs/how-to/restore-in-place.md",
    "docs/restores.md",
];

/// Of the whole operator, optimised as a whole, on a machine that plays scenarios.
const BUILD_LIMIT: Duration = Duration::from_mins(35);

pub const SCENARIOS: &[Scenario] = &[
    Scenario::gate(
        "docs",
        "whoever_follows_the_pages_backs_up_looks_on_and_restores",
        Bed::Own(1),
        |stage| Box::pin(used(stage)),
    )
    // A shell on a node asks the resolver of this host, to which no way leads from there.
    .leaving()
    // So many pages take their time.
    .long()
    .full(),
    Scenario::gate(
        "docs",
        "the_quickstart_of_the_readme_leads_to_three_ready_members",
        Bed::Own(1),
        |stage| Box::pin(started(stage)),
    ),
    // The machine that `up` makes is this one, as far as the page can tell.
    Scenario::gate(
        "docs",
        "the_tutorial_scales_replaces_backs_up_and_restores_within_ten_minutes",
        Bed::Own(1),
        |stage| Box::pin(toured(stage)),
    )
    .long(),
    Scenario::gate(
        "docs",
        "whoever_follows_the_page_about_installing_installs_upgrades_and_takes_all_away",
        Bed::Own(1),
        |stage| Box::pin(installed(stage)),
    ),
    Scenario::gate(
        "docs",
        "whoever_follows_the_page_about_moving_has_all_keys_in_a_cluster_of_this_operator",
        Bed::Own(1),
        |stage| Box::pin(moving::moved(stage)),
    )
    .full(),
    Scenario::gate(
        "docs",
        "whoever_follows_the_pages_in_trouble_makes_room_and_restores_what_lost_its_quorum",
        Bed::Own(1),
        |stage| Box::pin(trouble::filled_and_lost(stage)),
    )
    // A shell on a node asks the resolver of this host, to which no way leads from there.
    .leaving()
    // So many pages take their time.
    .long()
    .full(),
    Scenario::gate(
        "docs",
        "whoever_follows_the_page_about_certificates_renews_them_and_no_pod_is_made_anew",
        Bed::Own(1),
        |stage| Box::pin(trouble::renewed(stage)),
    )
    .long()
    .full(),
    Scenario::gate(
        "docs",
        "whoever_follows_the_page_about_upgrading_etcd_runs_the_newest_minor",
        Bed::Own(1),
        |stage| Box::pin(upgraded(stage)),
    )
    .full(),
    // The binary as it is shipped takes a quarter of an hour to build.
    Scenario::gate(
        "docs",
        "the_image_that_the_page_makes_is_small_and_does_all_that_the_first_steps_need",
        Bed::Own(1),
        |stage| Box::pin(shipped(stage)),
    )
    .full()
    .long(),
];

/// The blocks of the README's quickstart: how the image is built, how the operator is installed, how a cluster is created.
fn quickstart(readme: &Page) -> Result<[&Block; 3]> {
    let [image, install, create] = readme.shell().collect::<Vec<_>>()[..] else {
        bail!("the README has another quickstart by now");
    };
    Ok([image, install, create])
}

/// The image is that of the bed, under the name that `cargo xtask image` gives it; [`shipped`] builds it as the page says.
async fn started(stage: Arc<Stage>) -> Result<()> {
    prepared(&stage).await?;
    let desk = Desk::new(stage.cluster(), "desk", NAMESPACE).await?;
    desk.image(NAMES[1]).await?;
    let readme = Page::read("README.md")?;
    let [_, install, create] = quickstart(&readme)?;
    let said = desk.types(&[install, create]).await?;
    ensure!(said.contains("3/3") && said.ends_with("OK\n"), "{said}");
    if stage.prints() {
        readme.shows(&said, &[])?;
    }
    Ok(())
}

async fn toured(stage: Arc<Stage>) -> Result<()> {
    let kubernetes = sampled(&stage).await?;
    kubernetes.sample_is_backed_up().await?;
    let desk = Desk::new(stage.cluster(), "desk", NAMESPACE).await?;
    let page = Page::read("docs/tutorial.md")?;
    let began = Instant::now();
    let said = desk.types(&page.shell().collect::<Vec<_>>()).await?;
    let seconds = began.elapsed().as_secs();
    stage.note(&format!("the page was followed in {seconds} s"));
    println!("docs/tutorial.md was followed in {seconds} s");
    ensure!(seconds <= 600, "ten minutes are promised, it took {seconds} s");
    let (_, restored) = said
        .split_once("etcdrestore.etcd.database.coreos.com/orders-copy condition met")
        .context("nothing was restored")?;
    for name in ["ada", "grace"] {
        ensure!(
            restored.contains(&format!("customers/{name}\npaid")),
            "{name} is lost:\n{said}"
        );
    }
    ensure!(said.contains("patched"), "{said}");
    if stage.prints() {
        page.shows(&said, &[])?;
    }
    Ok(())
}

async fn installed(stage: Arc<Stage>) -> Result<()> {
    let kubernetes = prepared(&stage).await?;
    kubernetes.confine("etcd-operator").await?;
    let desk = Desk::new(stage.cluster(), "desk", NAMESPACE).await?;
    for name in NAMES {
        desk.image(name).await?;
    }
    let page = Page::read("docs/install.md")?;
    let upgrade = Page::read("docs/how-to/upgrade-operator.md")?;
    let uninstall = Page::read("docs/how-to/uninstall.md")?;
    let [first, last] = uninstall.shell().collect::<Vec<_>>()[..] else {
        bail!("uninstalling is another story by now");
    };
    let helm = page.under("With Helm")?;
    // By kubectl first, whose definitions Helm is then given; once more by Helm after its release is gone, without the
    // cluster, which would rightly ask what becomes of its volumes.
    let story: Vec<&Block> = [
        &page.under("With kubectl")?[..],
        &page.under("Custom resource definitions")?[..],
        &helm[..],
        &upgrade.shell().collect::<Vec<_>>()[..],
    ]
    .concat();
    let end = [first, helm[0], last];
    // What takes its time has a story of its own.
    let elsewhere = page.under("The image")?;
    for block in page.shell() {
        ensure!(
            story.contains(&block) || end.contains(&block) || elsewhere.contains(&block),
            "{} is never typed",
            block.place
        );
    }
    let said = desk.types(&story).await?;
    ensure!(said.contains("Phase:          Succeeded"), "{said}");
    let air_gapped = Page::read("docs/how-to/air-gapped.md")?;
    let [far] = air_gapped.all("yaml")?[..] else {
        bail!("the page shows other clusters by now");
    };
    desk.copied(&images::etcd_reference(SAMPLE_VERSION), FAR).await?;
    desk.lay("orders.yaml", far)?;
    desk.runs(
        "kubectl apply --filename orders.yaml\n\
         kubectl wait --for=condition=Available --timeout=170s etcdcluster/orders\n",
    )
    .await?;
    desk.types(&end).await?;
    let left = [
        "get",
        "crd,pvc,clusterrole,clusterrolebinding",
        "--all-namespaces",
        "--output=name",
    ];
    let left = kubernetes.kubectl(&left).await?;
    // The one of the namespace that kubectl installed into stays, which the page does not speak of.
    ensure!(
        !left.contains("etcd.database.coreos.com") && !left.contains("persistentvolumeclaim"),
        "{left}"
    );
    Ok(())
}

/// The sample, which is backed up, goes to the next minor and back down as the page says, and keeps what was written before.
async fn upgraded(stage: Arc<Stage>) -> Result<()> {
    let kubernetes = sampled(&stage).await?;
    kubernetes.sample_is_backed_up().await?;
    let newest = EtcdVersion::V3_7_3;
    for node in stage.cluster().nodes() {
        node.import(&images::etcd(newest).await?).await?;
    }
    let desk = Desk::new(stage.cluster(), "desk", NAMESPACE).await?;
    desk.runs("kubectl exec orders-0 --container etcd -- etcdctl put greeting hello\n")
        .await?;
    let said = typed_on(&desk, &["docs/how-to/upgrade-etcd.md"]).await?;
    for told in ["orders-nightly", "condition met", "UpgradeIrreversible"] {
        ensure!(said.contains(told), "nothing of {told:?} in\n{said}");
    }
    let said = desk
        .runs(
            "kubectl exec orders-0 --container etcd -- etcdctl get greeting\n\
             kubectl exec orders-0 --container etcd -- etcdctl version\n",
        )
        .await?;
    ensure!(
        said.contains("greeting\nhello\n") && said.contains(SAMPLE_VERSION.number()),
        "{said}"
    );
    Ok(())
}

async fn shipped(stage: Arc<Stage>) -> Result<()> {
    let readme = Page::read("README.md")?;
    let [image, install, create] = quickstart(&readme)?;
    make_image(&stage, image).await?;
    let kubernetes = prepared(&stage).await?;
    import_image(&stage).await?;
    let desk = Desk::new(stage.cluster(), "desk", NAMESPACE).await?;
    desk.types(&[install, create]).await?;

    let page = Page::read("docs/install.md")?;
    let [image] = page.under("The image")?[..] else {
        bail!("the image is made by more than one block by now");
    };
    make_image(&stage, image).await?;
    import_image(&stage).await?;
    kubernetes.install(NAMES[0]).await?;
    kubernetes.ready().await?;
    kubernetes.apply_samples().await?;
    kubernetes.sample_serves().await?;
    kubernetes.sample_is_backed_up().await?;
    let image = [
        "--namespace",
        NAMESPACE,
        "get",
        "pods",
        "--output=jsonpath={.items[*].spec['containers','initContainers'][*].image}",
    ];
    let images = kubernetes.kubectl(&image).await?;
    ensure!(!images.contains(images::OPERATOR), "another image runs: {images}");
    Ok(())
}

/// Runs a block that is one call of `cargo xtask image`.
async fn make_image(stage: &Stage, block: &Block) -> Result<()> {
    let mut words = block.text.split_whitespace();
    ensure!(
        words.next() == Some("cargo"),
        "{} is no word to Cargo",
        block.place
    );
    let mut make = command::cargo();
    make.args(words).current_dir(repository()).kill_on_drop(true);
    let made = tokio::time::timeout(BUILD_LIMIT, make.output())
        .await
        .context("the image was not made in time")??;
    let said = printed(made, &block.text)?;
    stage.note(&said);
    let digest = said.lines().last().unwrap_or_default();
    ensure!(digest.contains("sha256:"), "{said}");
    Ok(())
}

/// Gives every node the image that was made last.
async fn import_image(stage: &Stage) -> Result<()> {
    let archive = repository().join("target/image/etcd-operator.tar");
    for node in stage.cluster().nodes() {
        node.import(&archive).await?;
    }
    Ok(())
}

async fn used(stage: Arc<Stage>) -> Result<()> {
    let kubernetes = prepared(&stage).await?;
    kubernetes.install(images::OPERATOR).await?;
    kubernetes.ready().await?;
    let cluster = stage.cluster();
    let store = Emulator::start(cluster, Speech::S3).await?;
    let desk = Desk::new(cluster, "desk", NAMESPACE)
        .await?
        .with("https://minio.example.com:9000", &store.endpoint);
    desk.image(NAMES[0]).await?;
    for folder in [".aws", "s3-secret"] {
        lay_credentials(&desk, folder)?;
    }
    desk.lay("s3-secret/ca.crt", &store.authority)?;
    desk.lay("keys/2026-11", KEY)?;
    // Accounts of clouds that nobody asks here.
    for place in [
        "oss-secret/accessKeyID",
        "oss-secret/accessKeySecret",
        "gcs-secret/credentials.json",
        "abs-secret/storage-account",
        "abs-secret/storage-key",
    ] {
        desk.lay(place, "c29tZWJvZHk=")?;
    }

    // First, as it leaves a cluster as the next page makes it.
    let said = typed_on(&desk, &CLUSTERS).await?;
    let (_, adopted) = said
        .rsplit_once("coreos.com/adopt")
        .context("kept volumes were not found")?;
    ensure!(adopted.contains("hello"), "nothing is left on them:\n{said}");
    let said = typed_on(&desk, &["docs/how-to/back-up.md", "docs/backups.md"]).await?;
    for told in [
        "orders-nightly",
        "its hash is correct",
        "encrypted  etcd/orders_v",
    ] {
        ensure!(said.contains(told), "nothing of {told:?} in\n{said}");
    }
    typed_on(&desk, &["docs/operations.md"]).await?;
    // Last, with another EtcdBackup in the place of the one that the page before has left with a mistake.
    restored(&kubernetes, &desk, &store).await
}

/// The page about restores speaks of an EtcdBackup that is there, into a store that is reached from outside.
async fn restored(kubernetes: &Kubernetes, desk: &Desk<'_>, store: &Emulator) -> Result<()> {
    let before = [
        "delete",
        "etcdbackup",
        "orders-nightly",
        "--namespace",
        NAMESPACE,
        "--wait",
    ];
    kubernetes.kubectl(&before).await?;
    let secret = ["create", "secret", "generic", "minio", "--namespace", NAMESPACE];
    let folder = desk.path("s3-secret");
    let files = format!("--from-file={}", folder.display());
    kubernetes.kubectl(&[&secret[..], &[&files]].concat()).await?;
    let backup = json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2",
        "kind": "EtcdBackup",
        "metadata": { "name": "orders-nightly", "namespace": NAMESPACE },
        "spec": {
            "etcdCluster": { "name": "orders" },
            "storageType": "S3",
            "s3": {
                "path": format!("{BUCKET}/nightly/orders"), "endpoint": store.endpoint, "forcePathStyle": true,
                "awsSecret": "minio", "caSecret": "minio",
            },
        },
    });
    desk.lay("backup.json", &backup.to_string())?;
    let file = desk.path("backup.json");
    kubernetes
        .kubectl(&["apply", "--filename", &file.display().to_string()])
        .await?;
    kubernetes.sample_is_backed_up().await?;
    let in_place = Page::read("docs/how-to/restore-in-place.md")?;
    let elsewhere = Page::read("docs/how-to/restore-elsewhere.md")?;
    let manifests = [in_place.all("yaml")?, elsewhere.all("yaml")?].concat();
    let [back, _, copy, awaiting, awaited] = manifests[..] else {
        bail!("the page shows other manifests by now");
    };
    desk.lay("orders-back.yaml", &desk.told(back))?;
    let drill = Page::read("docs/how-to/disaster-drill.md")?;
    let autoscale = Page::read("docs/how-to/autoscale.md")?;
    let shown = [&manifests[..], &drill.all("yaml")?, &autoscale.all("yaml")?].concat();
    for (number, manifest) in shown.iter().enumerate() {
        desk.lay(&format!("shown-{number}.yaml"), &desk.told(manifest))?;
        desk.runs(&format!(
            "kubectl apply --dry-run=server --filename shown-{number}.yaml\n"
        ))
        .await?;
    }
    let said = typed_on(desk, &RESTORES).await?;
    ensure!(said.contains("Succeeded"), "{said}");
    // The second names an object of the reader's own; by its place one is restored in a story of its own.
    desk.lay("orders-copy.yaml", &desk.told(copy))?;
    desk.lay("orders-eu.yaml", &desk.told(awaiting))?;
    desk.lay("orders-eu-restore.yaml", &desk.told(awaited))?;
    typed_on(desk, &["docs/how-to/restore-elsewhere.md"]).await?;
    let said = desk.runs(READ_COPIES).await?;
    ensure!(
        said.matches("greeting\nhello\n").count() == 2,
        "not both hold what was backed up:\n{said}"
    );
    let said = typed_on(desk, &["docs/how-to/disaster-drill.md"]).await?;
    ensure!(said.contains("greeting\n"), "the drill found no key:\n{said}");
    // Its commands only read, from objects of all three kinds.
    typed_on(desk, &["docs/troubleshooting.md"]).await?;
    Ok(())
}

/// The two files of Amazon's command line that open the store.
fn lay_credentials(desk: &Desk<'_>, folder: &str) -> Result<()> {
    let (key, secret) = CREDENTIALS;
    for (name, text) in profile(key, secret, REGION) {
        desk.lay(&format!("{folder}/{name}"), &text)?;
    }
    Ok(())
}

/// Types all that these pages say, in their order; what the shell prints.
async fn typed_on(desk: &Desk<'_>, paths: &[&str]) -> Result<String> {
    let pages: Vec<Page> = paths.iter().map(|path| Page::read(path)).collect::<Result<_>>()?;
    desk.types(&pages.iter().flat_map(Page::shell).collect::<Vec<_>>())
        .await
}
