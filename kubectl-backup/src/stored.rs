//! Reads files of backups and restores through the API server: no other server has to be reachable.
//!
//! A DownloadRequest asks for the file and contains the hash of a key that is generated here; the
//! key itself is sent only with the request for the file ([`backup_core::reading`]). A Velero
//! server does not know keys and answers with a URL of the bucket, which is followed as its own
//! command does. After a broken connection, reading resumes where it stopped; a used or expired key
//! is replaced by a new one.

pub(crate) mod archive;
mod grant;
mod reader;

use std::{ops::Range, time::Duration};

use backup_core::{
    api::download_request::DownloadTargetKind,
    reading::{KEY_HEADER, STATUS_KIND},
    text::causes,
};
use http::{
    HeaderMap, Request, Response, StatusCode,
    header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG, IF_RANGE, RANGE},
    request,
};
use http_body_util::{BodyExt as _, Limited, combinators::UnsyncBoxBody};
use kube::{api::ObjectMeta, client::Body, core::Status};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    backoff,
    error::{About, Problem, ProblemKind, slow},
    print::{plain, size},
    session::Session,
    stored::grant::{Grant, ask, send_to_store},
};

pub(crate) use reader::{answer, document, piped, sized, unpacked};

/// Time without progress after which retries end.
const STALL_TIMEOUT: Duration = Duration::from_mins(1);
/// Maximum size of an error message that is read (bytes).
const MAX_STATUS_BYTES: usize = 64 * 1024;

#[derive(Clone, Debug)]
pub(crate) struct StoredFile<'a> {
    kind: DownloadTargetKind,
    pub(crate) name: &'a str,
    target: ReadTarget<'a>,
    /// The wanted part; `None` for the whole file.
    part: Option<Part>,
}

/// A byte range of a file that was read before.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) range: Range<u64>,
    pub(crate) of: Version,
}

/// Identifies the content of a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Version {
    /// Size of the whole file (bytes).
    pub(crate) size: u64,
    e_tag: String,
}

#[derive(Clone, Copy, Debug)]
enum ReadTarget<'a> {
    /// A file of the object with this uid; a newer object of the same name is an error.
    Stored { uid: &'a str },
    /// The plan of a restore with this spec (JSON), instead of a stored file.
    Plan { spec: &'a str },
    /// Objects themselves, by this query (JSON).
    Objects { query: &'a str },
}

impl<'a> StoredFile<'a> {
    /// A file of the backup or restore with this metadata.
    pub(crate) fn of(kind: DownloadTargetKind, meta: &'a ObjectMeta) -> Self {
        Self {
            kind,
            name: meta.name.as_deref().unwrap_or_default(),
            target: ReadTarget::Stored {
                uid: meta.uid.as_deref().unwrap_or_default(),
            },
            part: None,
        }
    }

    /// Restricts the read to these bytes. If the file has changed since, the problem is
    /// [`ProblemKind::Changed`].
    pub(crate) fn part(self, part: Part) -> Self {
        Self {
            part: Some(part),
            ..self
        }
    }

    /// The plan of a restore with this name and spec ([`backup_core::restore_plan`]).
    pub(crate) fn plan(name: &'a str, spec: &'a str) -> Self {
        // A Velero server cannot plan, and answers that there is no such restore.
        Self {
            kind: DownloadTargetKind::RestoreResourceList,
            name,
            target: ReadTarget::Plan { spec },
            part: None,
        }
    }

    /// The objects that a query asks for ([`backup_core::reading::ObjectQuery`]); `name` is for
    /// messages.
    pub(crate) fn objects(name: &'a str, query: &'a str) -> Self {
        // A Velero server has no such file of a backup with that name, or gives its URL.
        Self {
            kind: DownloadTargetKind::BackupResourceList,
            name,
            target: ReadTarget::Objects { query },
            part: None,
        }
    }

    /// Whether the answer is made for this request, and can be read only once.
    fn is_made(&self) -> bool {
        !matches!(self.target, ReadTarget::Stored { .. })
    }

    fn title(&self) -> String {
        match self.target {
            ReadTarget::Stored { .. } => format!("{} of {}", self.kind.as_str(), self.name),
            ReadTarget::Plan { .. } => format!("the plan of {}", self.name),
            ReadTarget::Objects { .. } => format!("the objects of {}", self.name),
        }
    }

    /// The server answers with a stored file instead.
    fn not_made(&self) -> Problem {
        match self.target {
            ReadTarget::Plan { .. } => {
                Problem::other("the server does not know how to tell what a restore would do")
                    .with_remedy("`kubectl backup diff` compares a backup with the cluster.")
            }
            _ => Problem::new(
                ProblemKind::NoFile,
                format!("the server does not know how to give {}", self.title()),
            ),
        }
    }
}

/// The result of a read.
pub(crate) struct FileRead {
    /// Number of bytes that the sink received.
    pub(crate) length: u64,
    /// `None` if the file cannot be read in parts.
    pub(crate) version: Option<Version>,
}

/// Reads a stored file. `sink` receives every byte once, in order; `talk` receives messages for the
/// user in the meantime.
pub(crate) async fn read(
    session: &Session,
    file: &StoredFile<'_>,
    mut sink: impl FnMut(&[u8]) -> Result<(), Problem>,
    mut talk: impl FnMut(&str),
) -> Result<FileRead, Problem> {
    let mut reading = FileReader::new(session, file);
    let mut since = Instant::now();
    let mut pauses = backoff::pauses();
    let mut is_first = true;
    loop {
        let before = reading.offset;
        let problem = match reading.attempt(&mut sink).await {
            Ok(()) => return Ok(reading.done()),
            Err(ReadError::Final(problem)) => return Err(problem),
            Err(ReadError::Retryable(problem)) => problem,
        };
        if reading.offset > before {
            since = Instant::now();
            pauses = backoff::pauses();
            is_first = true;
        }
        if since.elapsed() > STALL_TIMEOUT || file.is_made() && reading.offset > 0 {
            return Err(problem);
        }
        if std::mem::take(&mut is_first) {
            talk(&format!("{problem}; trying again"));
        }
        sleep(pauses.next().unwrap_or(STALL_TIMEOUT)).await;
    }
}

/// The body of a file, from the controller or from the store.
type Bytes = UnsyncBoxBody<bytes::Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// Whether a retry may succeed.
enum ReadError {
    Retryable(Problem),
    Final(Problem),
}

impl From<Problem> for ReadError {
    fn from(problem: Problem) -> Self {
        if problem.is_transient() {
            Self::Retryable(problem)
        } else {
            Self::Final(problem)
        }
    }
}

struct FileReader<'a> {
    session: &'a Session,
    file: &'a StoredFile<'a>,
    grant: Option<Grant>,
    /// Offset of the next byte.
    offset: u64,
    /// Size of the whole file, once known.
    size: Option<u64>,
    /// Version of the content, once known.
    e_tag: Option<String>,
}

impl<'a> FileReader<'a> {
    fn new(session: &'a Session, file: &'a StoredFile<'a>) -> Self {
        let (offset, of) = file
            .part
            .as_ref()
            .map_or((0, None), |part| (part.range.start, Some(&part.of)));
        let size = of.map(|of| of.size);
        let e_tag = of.map(|of| of.e_tag.clone());
        Self {
            session,
            file,
            grant: None,
            offset,
            size,
            e_tag,
        }
    }

    fn done(self) -> FileRead {
        let begin = self.file.part.as_ref().map_or(0, |part| part.range.start);
        let version = self
            .size
            .zip(self.e_tag)
            .map(|(size, e_tag)| Version { size, e_tag });
        FileRead {
            length: self.offset - begin,
            version,
        }
    }

    /// The end of the wanted bytes, once known.
    fn end(&self) -> Option<u64> {
        self.file
            .part
            .as_ref()
            .map(|part| part.range.end)
            .or(self.size)
    }

    async fn attempt(
        &mut self,
        sink: &mut impl FnMut(&[u8]) -> Result<(), Problem>,
    ) -> Result<(), ReadError> {
        let grant = match self.grant.take() {
            Some(grant) => grant,
            None => ask(self.session, self.file).await?,
        };
        let sent = timeout(self.session.request_timeout, self.send(&grant)).await;
        let of_store = matches!(grant, Grant::Url(_));
        self.grant = Some(grant);
        let response = sent.map_err(|_| self.slow())??;
        let Some(mut skip) = self.begin(&response)? else {
            return if of_store {
                Err(self.refused_by_store(&response))
            } else {
                self.refused(response).await
            };
        };
        let mut body = response.into_body();
        loop {
            let frame = timeout(self.session.request_timeout, body.frame()).await;
            let frame = match frame.map_err(|_| self.slow())? {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => {
                    return Err(ReadError::Retryable(self.broken(&causes(&*error))));
                }
                None => break,
            };
            let Ok(mut bytes) = frame.into_data() else {
                continue;
            };
            let known = skip.min(bytes.len() as u64);
            skip -= known;
            let _ = bytes.split_to(usize::try_from(known).unwrap_or(bytes.len()));
            if let Some(end) = self.end() {
                bytes.truncate(
                    usize::try_from(end.saturating_sub(self.offset)).unwrap_or(usize::MAX),
                );
            }
            sink(&bytes).map_err(ReadError::Final)?;
            self.offset += bytes.len() as u64;
            if self.file.part.is_some() && self.end() == Some(self.offset) {
                break;
            }
        }
        if self.end().is_some_and(|end| end != self.offset) {
            return Err(ReadError::Retryable(self.broken("the connection ended")));
        }
        Ok(())
    }

    async fn send(&self, grant: &Grant) -> Result<Response<Bytes>, ReadError> {
        match grant {
            Grant::Path { path, key } => {
                let request = self.request(Request::get(path).header(KEY_HEADER, key.as_str()))?;
                let sent = self
                    .session
                    .client
                    .send(request)
                    .await
                    .map_err(|error| self.explain(error))?;
                Ok(sent.map(|body| body.map_err(Into::into).boxed_unsync()))
            }
            Grant::Url(url) => {
                let request = self.request(Request::get(url))?;
                send_to_store(request)
                    .await
                    .map_err(|why| ReadError::Retryable(self.other(why)))
            }
        }
    }

    fn request(&self, mut request: request::Builder) -> Result<Request<Body>, Problem> {
        let last = self
            .file
            .part
            .as_ref()
            .map(|part| part.range.end.saturating_sub(1).to_string());
        if self.offset > 0 || last.is_some() {
            request = request.header(
                RANGE,
                format!("bytes={}-{}", self.offset, last.unwrap_or_default()),
            );
            if let Some(e_tag) = &self.e_tag {
                request = request.header(IF_RANGE, e_tag);
            }
        }
        request
            .body(Body::empty())
            .map_err(|error| self.other(error.to_string()))
    }

    /// Number of bytes of the answer that were already read; `None` if the answer is no file.
    fn begin(&mut self, response: &Response<Bytes>) -> Result<Option<u64>, ReadError> {
        let headers = response.headers();
        let e_tag = text(headers, &ETAG);
        let is_known = self.offset > 0 || self.file.part.is_some();
        let other_version = is_known && e_tag != self.e_tag;
        match response.status() {
            StatusCode::OK => {
                if other_version {
                    return Err(self.changed());
                }
                self.size = number(text(headers, &CONTENT_LENGTH).as_deref());
                self.e_tag = e_tag;
                Ok(Some(self.offset))
            }
            StatusCode::PARTIAL_CONTENT => {
                let range = text(headers, &CONTENT_RANGE).unwrap_or_default();
                let begin = range
                    .strip_prefix("bytes ")
                    .and_then(|range| range.split('-').next());
                let size = range.rsplit('/').next();
                if other_version || number(size) != self.size {
                    return Err(self.changed());
                }
                if number(begin) != Some(self.offset) {
                    let why = format!(
                        "bytes from {} on were asked for, and the answer has {range:?}",
                        self.offset
                    );
                    return Err(ReadError::Final(self.other(why)));
                }
                Ok(Some(0))
            }
            StatusCode::RANGE_NOT_SATISFIABLE => Err(self.changed()),
            _ => Ok(None),
        }
    }

    /// A refusal by the store: a URL is valid for ten minutes, and is given even if the file does
    /// not exist.
    fn refused_by_store(&mut self, response: &Response<Bytes>) -> ReadError {
        let code = response.status();
        if code == StatusCode::NOT_FOUND {
            let message = format!("there is no {} in the store", self.file.title());
            return ReadError::Final(Problem::new(ProblemKind::NoFile, message));
        }
        if code == StatusCode::FORBIDDEN {
            self.grant = None;
        }
        ReadError::Retryable(self.other(format!("the store answers {code}")))
    }

    /// A refusal by the controller or the API server.
    async fn refused(&mut self, response: Response<Bytes>) -> Result<(), ReadError> {
        let code = response.status();
        let body = Limited::new(response.into_body(), MAX_STATUS_BYTES).collect();
        let body = timeout(self.session.request_timeout, body)
            .await
            .map_err(|_| self.slow())?;
        let bytes = body
            .map(http_body_util::Collected::to_bytes)
            .unwrap_or_default();
        let status = serde_json::from_slice::<Status>(&bytes).unwrap_or_else(|_| {
            let text: String = String::from_utf8_lossy(&bytes).chars().take(200).collect();
            Status::failure(&plain(&text), "").with_code(code.as_u16())
        });
        let details = status.details.as_ref();
        if details.is_none_or(|details| details.kind != STATUS_KIND) {
            // The proxy cannot reach the controller, or the API server forbids the request.
            if code == StatusCode::NOT_FOUND {
                let why = plain(&status.message);
                let problem = Problem::other(format!(
                    "the API server does not lead to the controller's files: {why}"
                ))
                .with_remedy("Install the Service backup-controller from deploy/base.");
                return Err(ReadError::Final(problem));
            }
            return Err(self.explain(kube::Error::Api(Box::new(status))).into());
        }
        let message = plain(&status.message);
        let problem = match code {
            StatusCode::FORBIDDEN | StatusCode::SERVICE_UNAVAILABLE => {
                if code == StatusCode::FORBIDDEN {
                    self.grant = None;
                }
                return Err(ReadError::Retryable(self.other(message)));
            }
            StatusCode::NOT_FOUND => Problem::new(ProblemKind::NoFile, message),
            StatusCode::UNPROCESSABLE_ENTITY => Problem::bad_file(message),
            _ => Problem::new(ProblemKind::NotGiven, message),
        };
        Err(ReadError::Final(problem))
    }

    fn other(&self, why: String) -> Problem {
        let kind = ProblemKind::Api {
            code: 0,
            retry_after: None,
        };
        Problem {
            doing: format!("cannot read {}", self.file.title()),
            ..Problem::new(kind, why)
        }
    }

    fn changed(&self) -> ReadError {
        let why = format!("{} has changed while it was read", self.file.title());
        ReadError::Final(Problem::new(ProblemKind::Changed, why).with_remedy("Try again."))
    }

    fn broken(&self, why: &str) -> Problem {
        self.other(format!("it broke off after {}: {why}", size(self.offset)))
    }

    fn explain(&self, error: kube::Error) -> Problem {
        self.session.explain(
            &About::called("read", "file", "services/proxy", &self.file.title()),
            error,
        )
    }

    fn slow(&self) -> Problem {
        let doing = format!("cannot read {}", self.file.title());
        slow(&doing, &self.session.server, self.session.request_timeout)
    }
}

fn text(headers: &HeaderMap, name: &http::HeaderName) -> Option<String> {
    headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .map(str::to_owned)
}

fn number(text: Option<&str>) -> Option<u64> {
    text.and_then(|text| text.trim().parse().ok())
}
