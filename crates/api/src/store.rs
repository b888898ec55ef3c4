//! Where backups lie: the store blocks that backups and restores share.
//!
//! The secrets' formats are those of the older operator; where the platform gives identity, the secret is left out.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which store block counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StorageType {
    /// Amazon S3 and everything that speaks its protocol.
    #[default]
    S3,
    /// Azure Blob Storage.
    ABS,
    /// Google Cloud Storage.
    GCS,
    /// Alibaba Cloud Object Storage Service.
    OSS,
    /// A directory on a PersistentVolumeClaim.
    Local,
}

impl StorageType {
    /// All of them, in the order the documentation lists them.
    pub const ALL: [Self; 5] = [Self::S3, Self::ABS, Self::GCS, Self::OSS, Self::Local];

    /// The value as users write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::S3 => "S3",
            Self::ABS => "ABS",
            Self::GCS => "GCS",
            Self::OSS => "OSS",
            Self::Local => "Local",
        }
    }

    /// The spec field that holds this store's block.
    pub fn block(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::ABS => "abs",
            Self::GCS => "gcs",
            Self::OSS => "oss",
            Self::Local => "local",
        }
    }
}

/// A bucket of S3 or of a store that speaks its protocol.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.path) || (!self.path.contains('://') && !self.path.endsWith('.manifest.json') && !self.path.endsWith('.claim.json'))").message("s3.path must be BUCKET/KEY without a scheme, and must not end in .manifest.json or .claim.json, as files beside backups do; for example: path: my-bucket/etcd/orders").field_path(".path"),
    validation = Rule::new("has(self.path) && self.path.matches('^[^/]+/.+$')").message("s3.path must be BUCKET/KEY, and s3.awsSecret must name the Secret with the credentials where the platform gives no identity; for example: s3: {path: my-bucket/etcd/orders, awsSecret: aws}").field_path(".path"),
    validation = Rule::new("!has(self.awsSecret) || self.awsSecret != ''").message("s3.awsSecret is empty: name the Secret with the credentials, or leave the field out where the platform gives identity; for example: awsSecret: aws").field_path(".awsSecret"),
)]
pub struct S3Store {
    /// BUCKET/KEY of the object; a periodic backup adds revision and time to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub path: Option<String>,
    /// The Secret with the keys credentials and config, in the format of the AWS command line. Leave it out where the platform gives identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub aws_secret: Option<String>,
    /// The address of a store that is not Amazon's, with scheme. Empty means Amazon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    #[x_kube(validation = Rule::new("self == '' || self.matches('^https?://[^/ ]+')").message("s3.endpoint must be an address with scheme; for example: endpoint: https://minio.example.com:9000"))]
    pub endpoint: Option<String>,
    /// Puts the bucket into the path instead of the host name, as most stores outside Amazon need it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force_path_style: Option<bool>,
    /// The region. It wins over the Secret's config.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub region: Option<String>,
    /// Encryption by the store: AES256, or aws:kms with the store's default key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_side_encryption: Option<ServerSideEncryption>,
    /// The storage class of the objects, for example STANDARD_IA.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub storage_class: Option<String>,
    /// The Secret with the key ca.crt that signs the endpoint's certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub ca_secret: Option<String>,
}

/// Encryption by the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ServerSideEncryption {
    /// With keys that the store keeps.
    AES256,
    /// With the default key of the key management service.
    #[serde(rename = "aws:kms")]
    Kms,
}

/// A container of Azure Blob Storage.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.path) || (!self.path.contains('://') && !self.path.endsWith('.manifest.json') && !self.path.endsWith('.claim.json'))").message("abs.path must be CONTAINER/KEY without a scheme, and must not end in .manifest.json or .claim.json, as files beside backups do; for example: path: backups/etcd/orders").field_path(".path"),
    validation = Rule::new("has(self.path) && self.path.matches('^[^/]+/.+$')").message("abs.path must be CONTAINER/KEY, and abs.absSecret must name the Secret with the credentials where the platform gives no identity; for example: abs: {path: backups/etcd/orders, absSecret: azure}").field_path(".path"),
    validation = Rule::new("!has(self.absSecret) || self.absSecret != ''").message("abs.absSecret is empty: name the Secret with the credentials, or leave the field out where the platform gives identity; for example: absSecret: azure").field_path(".absSecret"),
)]
pub struct AbsStore {
    /// CONTAINER/KEY of the object; a periodic backup adds revision and time to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub path: Option<String>,
    /// The Secret with the keys storage-account, storage-key and, outside the public cloud, cloud. Leave it out where the platform gives identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub abs_secret: Option<String>,
    /// Where the account is served, if that is not where its cloud has it; as a private link or a store of your own has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    #[x_kube(validation = Rule::new("self == '' || self.matches('^https?://[^/ ]+')").message("abs.endpoint must be an address with scheme; for example: endpoint: https://backups.blob.example.com"))]
    pub endpoint: Option<String>,
    /// A Secret with the key ca.crt, for an endpoint whose certificate a private authority signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub ca_secret: Option<String>,
}

/// A bucket of Google Cloud Storage.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.path) || (!self.path.contains('://') && !self.path.endsWith('.manifest.json') && !self.path.endsWith('.claim.json'))").message("gcs.path must be BUCKET/KEY without a scheme, and must not end in .manifest.json or .claim.json, as files beside backups do; for example: path: my-bucket/etcd/orders").field_path(".path"),
    validation = Rule::new("has(self.path) && self.path.matches('^[^/]+/.+$')").message("gcs.path must be BUCKET/KEY, and gcs.gcpSecret must name the Secret with the credentials where the platform gives no identity; for example: gcs: {path: my-bucket/etcd/orders, gcpSecret: gcp}").field_path(".path"),
)]
pub struct GcsStore {
    /// BUCKET/KEY of the object; a periodic backup adds revision and time to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub path: Option<String>,
    /// The Secret with the key credentials.json or access-token. Leave it out, or empty, for the platform's identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub gcp_secret: Option<String>,
    /// Where Cloud Storage is served, if that is not storage.googleapis.com, as with Private Service Connect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    #[x_kube(validation = Rule::new("self == '' || self.matches('^https?://[^/ ]+')").message("gcs.endpoint must be an address with scheme; for example: endpoint: https://storage-backups.p.googleapis.com"))]
    pub endpoint: Option<String>,
    /// A Secret with the key ca.crt, for an endpoint whose certificate a private authority signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub ca_secret: Option<String>,
}

/// A bucket of Alibaba Cloud Object Storage Service.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.path) || (!self.path.contains('://') && !self.path.endsWith('.manifest.json') && !self.path.endsWith('.claim.json'))").message("oss.path must be BUCKET/KEY without a scheme, and must not end in .manifest.json or .claim.json, as files beside backups do; for example: path: my-bucket/etcd/orders").field_path(".path"),
    validation = Rule::new("has(self.path) && self.path.matches('^[^/]+/.+$')").message("oss.path must be BUCKET/KEY, and oss.ossSecret must name the Secret with the credentials where the platform gives no identity; for example: oss: {path: my-bucket/etcd/orders, ossSecret: aliyun}").field_path(".path"),
    validation = Rule::new("!has(self.ossSecret) || self.ossSecret != ''").message("oss.ossSecret is empty: name the Secret with the credentials, or leave the field out where the platform gives identity; for example: ossSecret: aliyun").field_path(".ossSecret"),
)]
pub struct OssStore {
    /// BUCKET/KEY of the object; a periodic backup adds revision and time to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub path: Option<String>,
    /// The Secret with the keys accessKeyID and accessKeySecret. Leave it out where the platform gives identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub oss_secret: Option<String>,
    /// The endpoint, with or without scheme: public, internal, or a domain of your own. Default: http://oss-cn-hangzhou.aliyuncs.com.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub endpoint: Option<String>,
    /// The region, where the endpoint does not tell it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub region: Option<String>,
    /// A Secret with the key ca.crt, for an endpoint whose certificate a private authority signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub ca_secret: Option<String>,
}

/// A directory on a PersistentVolumeClaim in the object's namespace.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.persistentVolumeClaim) && self.persistentVolumeClaim != ''").message("local.persistentVolumeClaim must name a PersistentVolumeClaim of this namespace; for example: persistentVolumeClaim: etcd-backups").field_path(".persistentVolumeClaim"),
    validation = Rule::new("!has(self.path) || (!self.path.startsWith('/') && !self.path.contains('..'))").message("local.path must be relative to the volume and must not contain '..'; for example: path: etcd/orders").field_path(".path"),
    validation = Rule::new("!has(self.path) || (!self.path.contains('://') && !self.path.endsWith('.manifest.json') && !self.path.endsWith('.claim.json'))").message("local.path must be without a scheme, and must not end in .manifest.json or .claim.json, as files beside backups do; for example: path: etcd/orders").field_path(".path"),
)]
pub struct LocalStore {
    /// The claim of the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub persistent_volume_claim: Option<String>,
    /// The path of the object below the volume's root. Default: the name of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub path: Option<String>,
}

/// Names the EtcdCluster that is backed up or restored.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterRef {
    /// The name of an EtcdCluster in the same namespace.
    #[schemars(length(max = 253))]
    #[x_kube(validation = Rule::new("self != ''").message("etcdCluster.name must name an EtcdCluster of this namespace; for example: etcdCluster: {name: orders}"))]
    pub name: String,
}
