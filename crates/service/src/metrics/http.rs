//! The part of HTTP/1.1 that Prometheus needs: one request per connection, one page.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Function that makes the body served at /metrics.
pub type Page = dyn Fn() -> String + Send + Sync;

/// Connections at a time; one more is closed at once.
const CONNECTIONS_MAX: usize = 64;
/// Longest request in bytes.
const REQUEST_MAX: usize = 8 << 10;
/// Longest time for a client's whole request, and then for each part of the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same limit while more than [`MANY`] clients are connected.
const PATIENCE_OF_MANY: Duration = Duration::from_millis(500);
/// Number of connections above which the limit is shorter.
const MANY: usize = CONNECTIONS_MAX / 2;

/// Serves the page until the process ends.
pub fn serve(listener: &TcpListener, page: &Arc<Page>) {
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let Ok((stream, _)) = listener.accept() else {
            // The process may be out of descriptors, of which other connections free some.
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        if open.fetch_add(1, SeqCst) >= CONNECTIONS_MAX {
            open.fetch_sub(1, SeqCst);
            continue;
        }
        let (page, serving) = (page.clone(), open.clone());
        let served = std::thread::Builder::new().name("metrics client".into()).spawn(move || {
            // A client that hangs up cannot be answered.
            let _ = answer(stream, &*page, &serving);
            serving.fetch_sub(1, SeqCst);
        });
        if served.is_err() {
            open.fetch_sub(1, SeqCst);
        }
    }
}

fn answer(mut stream: TcpStream, page: &Page, open: &AtomicUsize) -> io::Result<()> {
    let patience = if open.load(SeqCst) > MANY { PATIENCE_OF_MANY } else { PATIENCE };
    stream.set_write_timeout(Some(patience))?;
    let head = head(&mut Until { stream: &stream, end: Instant::now() + patience })?;
    let (status, kind, body) = respond(&head, page);
    let length = body.len();
    let head_only = head.starts_with(b"HEAD ");
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{}",
        if head_only { "" } else { &body }
    );
    stream.write_all(answer.as_bytes())
}

/// A client with a deadline for its whole request, so that single bytes now and then do not prolong it.
struct Until<'a> {
    stream: &'a TcpStream,
    end: Instant,
}

impl Read for Until<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        (&mut &*self.stream).read(bytes)
    }
}

/// Reads the request up to the blank line, or up to [`REQUEST_MAX`] bytes.
fn head(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut part = [0; 1024];
    while head.len() < REQUEST_MAX && !head.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut part)? {
            0 => break,
            read => head.extend_from_slice(&part[..read]),
        }
    }
    Ok(head)
}

/// Status, content type and body of the answer to a request.
fn respond(head: &[u8], page: &Page) -> (&'static str, &'static str, String) {
    const PLAIN: &str = "text/plain; charset=utf-8";
    let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|&byte| byte == b' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    if !version.is_some_and(|version| version.starts_with(b"HTTP/1.")) {
        return ("400 Bad Request", PLAIN, "no request of HTTP/1\n".to_owned());
    }
    if !matches!(method, Some(b"GET" | b"HEAD")) {
        return ("405 Method Not Allowed", PLAIN, "GET or HEAD\n".to_owned());
    }
    match target.map(|target| target.split(|&byte| byte == b'?').next().unwrap_or_default()) {
        Some(b"/metrics") => ("200 OK", "text/plain; version=0.0.4; charset=utf-8", page()),
        _ => ("404 Not Found", PLAIN, "the figures are at /metrics\n".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn status(request: &[u8]) -> &'static str {
        respond(request, &|| "up 1\n".to_owned()).0
    }

    #[test]
    fn only_the_page_is_served() {
        assert_eq!(status(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), "200 OK");
        assert_eq!(status(b"GET /metrics?x=1 HTTP/1.0\r\n\r\n"), "200 OK");
        assert_eq!(status(b"GET / HTTP/1.1\r\n\r\n"), "404 Not Found");
        assert_eq!(status(b"GET /../metrics HTTP/1.1\r\n\r\n"), "404 Not Found");
        assert_eq!(status(b"POST /metrics HTTP/1.1\r\n\r\n"), "405 Method Not Allowed");
        for noise in [&b""[..], b"\r\n\r\n", b"GET", b"GET /metrics", b"{\"version\":1}", &[0xFF; 9000]] {
            assert_eq!(status(noise), "400 Bad Request");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(status(&bytes).len() > 3);
            let read = head(&mut &bytes[..]).expect("memory cannot fail");
            prop_assert_eq!(read, bytes);
        }
    }
}
