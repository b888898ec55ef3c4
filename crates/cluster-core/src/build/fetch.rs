//! What a restore adds to the pods, and takes away again: a container that brings the object onto the volume before
//! anything else runs. It alone has the credentials of the store.

use etcd_operator_api::contract::{
    self, FetchTask, JobOrder, ORDER_VARIABLE, RestoreIntent, Task, VERSION, mounts,
};
use k8s_openapi::api::core::v1::{
    Container, EnvVar, PersistentVolumeClaimVolumeSource, PodSpec, PodTemplateSpec, SecretVolumeSource,
    Volume, VolumeMount,
};

use super::{
    BuildInputs, FetchContainer,
    container::variable,
    labels::{DATA, INSTALL},
    security,
    volumes::{SECRET_MODE, VOLUME, mount},
};

/// The container that brings the object of a restore.
pub const FETCH: &str = "fetch";

/// The volume of its pod on which the backups lie, where they are in a claim.
pub const FETCH_CLAIM: &str = "restore-backups";

/// What the names of its volumes begin with.
const PREFIX: &str = "restore-";

/// Adds the fetch container of a restore to the template, keeps it as the stored template has it, or removes it.
pub(super) fn apply(template: &mut PodTemplateSpec, inputs: &BuildInputs) {
    let Some(spec) = &mut template.spec else {
        return;
    };
    if inputs.is_restoring {
        update_install_image(spec, inputs);
    }
    remove_fetch(spec);
    match &inputs.fetch_container {
        FetchContainer::Absent => {}
        FetchContainer::Required(request) => add_fetch(spec, request, inputs),
        FetchContainer::Unchanged => {
            let stored = inputs.stored.as_ref().map(|stored| stored.template());
            keep_stored(spec, stored.and_then(|stored| stored.spec));
        }
    }
}

/// Takes over the fetch container and its volumes from the stored pod template.
fn keep_stored(spec: &mut PodSpec, before: Option<PodSpec>) {
    let before = before.unwrap_or_default();
    let containers = before.init_containers.into_iter().flatten();
    let fetch = containers.filter(|container| container.name == FETCH);
    spec.init_containers.get_or_insert_default().extend(fetch);
    let volumes = before.volumes.into_iter().flatten();
    let own = volumes.filter(|volume| volume.name.starts_with(PREFIX));
    spec.volumes.get_or_insert_default().extend(own);
}

/// Gives the install container this operator's image. A restore re-creates the pods anyway, and an earlier guard may
/// not know of restores.
fn update_install_image(spec: &mut PodSpec, inputs: &BuildInputs) {
    let containers = spec.init_containers.iter_mut().flatten();
    for install in containers.filter(|container| container.name == INSTALL) {
        install.image = Some(inputs.operator_image.to_string());
    }
}

fn remove_fetch(spec: &mut PodSpec) {
    if let Some(containers) = &mut spec.init_containers {
        containers.retain(|container| container.name != FETCH);
    }
    if let Some(volumes) = &mut spec.volumes {
        volumes.retain(|volume| !volume.name.starts_with(PREFIX));
    }
}

/// Adds the fetch container as the last init container, with the resources of the install container.
fn add_fetch(spec: &mut PodSpec, request: &RestoreIntent, inputs: &BuildInputs) {
    let (volumes, mut mounts): (Vec<_>, Vec<_>) = secret_mounts(request).into_iter().unzip();
    mounts.push(mount(DATA, VOLUME, false));
    let containers = spec.init_containers.get_or_insert_default();
    let install = containers.iter().find(|container| container.name == INSTALL);
    let resources = install.and_then(|install| install.resources.clone());
    containers.push(Container {
        name: FETCH.to_owned(),
        image: Some(inputs.operator_image.to_string()),
        command: Some(vec!["etcd-operator".to_owned(), FETCH.to_owned()]),
        env: Some(vec![
            order_variable(request, inputs),
            variable("POD_NAME", "metadata.name"),
            variable("POD_UID", "metadata.uid"),
        ]),
        resources,
        volume_mounts: Some(mounts),
        security_context: Some(security::container()),
        termination_message_policy: Some("File".to_owned()),
        ..Container::default()
    });
    spec.volumes.get_or_insert_default().extend(volumes);
}

/// The environment variable with the order for the fetch container.
fn order_variable(request: &RestoreIntent, inputs: &BuildInputs) -> EnvVar {
    let order = JobOrder {
        version: VERSION,
        run: request.uid.clone(),
        owner_uid: request.uid.clone(),
        store: request.store.clone(),
        task: Task::Fetch(Box::new(FetchTask {
            restore_uid: request.uid.clone(),
            incarnation: inputs.state_annotations.incarnation,
            cluster_uid: Some(inputs.cluster_uid.clone()),
            object: request.object.clone(),
            keys: request.secrets.keys.as_ref().map(|_| mounts::KEYS.to_owned()),
            volume: VOLUME.to_owned(),
        })),
    };
    let document = String::from_utf8(contract::write(&order)).expect("JSON is UTF-8");
    EnvVar {
        name: ORDER_VARIABLE.to_owned(),
        // `$(NAME)` would be taken for a variable.
        value: Some(document.replace("$(", "$$(")),
        ..EnvVar::default()
    }
}

/// The volumes and mounts with the Secrets and the claim that the fetch container reads.
fn secret_mounts(request: &RestoreIntent) -> Vec<(Volume, VolumeMount)> {
    let secrets = &request.secrets;
    let named = [
        ("restore-store", &secrets.store, mounts::STORE_SECRET),
        ("restore-ca", &secrets.ca, mounts::STORE_CA),
        ("restore-keys", &secrets.keys, mounts::KEYS),
    ];
    let secret_volumes = named.into_iter().filter_map(|(name, secret, at)| {
        let volume = Volume {
            name: name.to_owned(),
            secret: Some(SecretVolumeSource {
                secret_name: Some(secret.clone()?),
                default_mode: Some(SECRET_MODE),
                // A volume that needs nothing starts without it; one that needs it says so.
                optional: Some(true),
                ..SecretVolumeSource::default()
            }),
            ..Volume::default()
        };
        Some((volume, mount(name, at, true)))
    });
    let claim = secrets.claim.as_ref().map(|claim| {
        let volume = Volume {
            name: FETCH_CLAIM.to_owned(),
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                claim_name: claim.clone(),
                read_only: None,
            }),
            ..Volume::default()
        };
        (volume, mount(FETCH_CLAIM, mounts::VOLUME, true))
    });
    secret_volumes.chain(claim).collect()
}
