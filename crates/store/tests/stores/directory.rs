//! Tests of the local directory alone: staying inside it, symbolic links, and a volume that is not mounted.

use bytes::Bytes;
use etcd_operator_store::backend::ByteRange;
use etcd_operator_store::local::Local;
use etcd_operator_store::{Class, CreateOutcome, Key};

use crate::support::Directory;

fn key(name: &str) -> Key {
    Key::new(name).expect("a name")
}

#[tokio::test]
async fn symbolic_links_out_of_the_directory_are_not_followed() {
    let (inside, outside) = (Directory::new("inside"), Directory::new("outside"));
    std::fs::write(outside.0.join("secret"), "not yours").expect("written");
    std::os::unix::fs::symlink(&outside.0, inside.0.join("folder")).expect("a link");
    std::os::unix::fs::symlink(outside.0.join("secret"), inside.0.join("file")).expect("a link");
    let store = inside.store();
    for name in ["folder/secret", "file"] {
        let errors = [
            store.head(&key(name)).await.expect_err("a link"),
            store
                .open(&key(name), ByteRange::ALL, None)
                .await
                .expect_err("a link"),
            store.begin(&key(name), 10).await.expect_err("a link"),
            store.create(&key(name), Bytes::new()).await.expect_err("a link"),
            store.delete(&key(name)).await.expect_err("a link"),
        ];
        for error in errors {
            assert_eq!(error.class, Class::Forbidden, "{error}");
        }
    }
    assert_eq!(store.list("").await, Ok(Vec::new()));
    assert_eq!(store.list("../").await, Ok(Vec::new()));
    let content = std::fs::read_to_string(outside.0.join("secret")).expect("still there");
    assert_eq!(content, "not yours");
}

#[tokio::test]
async fn nothing_is_written_if_the_volume_is_not_mounted() {
    let directory = Directory::new("unmounted");
    let path = directory.0.join("volume");
    let backend = Local::new(&path).expect("a backend");
    let store = etcd_operator_store::Store::new(std::sync::Arc::new(backend), crate::support::policy());
    let error = store.begin(&key("etcd/x"), 10).await.expect_err("no volume");
    assert_eq!(error.class, Class::NoBucket, "{error}");
    assert!(error.to_string().contains("local.path"), "{error}");
    assert!(!path.exists());
}

#[tokio::test]
async fn the_uploads_directory_cannot_contain_objects() {
    let directory = Directory::new("uploads");
    let store = directory.store();
    let upload = store.begin(&key("etcd/x"), 10).await.expect("the upload begins");
    let reserved = key(".etcd-operator-uploads/x");
    let error = store.create(&reserved, Bytes::new()).await.expect_err("reserved");
    assert_eq!(error.class, Class::Unsupported, "{error}");
    assert_eq!(
        store.list("").await,
        Ok(Vec::new()),
        "what is under way is no object"
    );
    upload.abort().await.expect("aborted");
    assert_eq!(
        store.create(&key("etcd/x"), Bytes::new()).await,
        Ok(CreateOutcome::Created)
    );
}

#[test]
fn relative_paths_and_paths_with_parent_components_are_refused() {
    for path in ["backups", "/a/../b", ""] {
        let refused = Local::new(path).expect_err(path);
        assert_eq!(refused.setting, "local.path");
    }
}
