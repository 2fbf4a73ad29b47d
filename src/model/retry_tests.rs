use std::future::ready;
use std::sync::Mutex;

use tokio::time::Instant;

use super::*;

const POLICY: Retry = Retry { attempts: 10, base: Duration::from_millis(500), cap: Duration::from_secs(30) };

/// What was observed, as text.
#[derive(Default)]
struct Log(Mutex<Vec<String>>);

impl Observer for Log {
    fn observe(&self, event: CallEvent<'_>) {
        let line = match event {
            CallEvent::Sent { attempt } => format!("sent {attempt}"),
            CallEvent::Part { .. } => "part".to_owned(),
            CallEvent::Waiting(r) => format!("wait {}/{} {:?}", r.attempt, r.attempts, r.discarded_message_id),
        };
        self.0.lock().unwrap().push(line);
    }
}

impl Log {
    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

fn api(status: u16, retry_after: Option<u64>) -> Failed {
    Failed::answered(status, "said".to_owned(), retry_after.map(Duration::from_secs), Some("msg_1"))
}

#[test]
fn what_may_pass_is_told_from_what_lasts() {
    for status in [408, 409, 429, 500, 502, 503, 504, 529, 599] {
        assert!(matches!(api(status, None), Failed::Passing(_)), "{status}");
    }
    for status in [200, 301, 400, 401, 403, 404, 410, 422, 600] {
        let Failed::Lasting(ModelError::Api { status: given, .. }) = api(status, None) else { panic!("{status}") };
        assert_eq!(given, status);
    }
    assert!(matches!(api(413, None), Failed::Lasting(ModelError::Overflow { status: 413, .. })));
    let says = |text: &str| match Failed::answered(400, text.to_owned(), None, None) {
        Failed::Lasting(ModelError::Overflow { .. }) => true,
        Failed::Lasting(ModelError::Api { .. }) => false,
        other => panic!("{other:?}"),
    };
    assert!(says("prompt is too long: 208310 tokens > 200000 maximum"));
    assert!(says("input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000"));
    assert!(!says("tools.0.name: is too long"));
    assert!(matches!(
        Failed::answered(422, "prompt is too long".into(), None, None),
        Failed::Lasting(ModelError::Api { .. })
    ));
}

#[test]
fn r102_delays_double_to_the_cap_are_spread_and_come_after_what_the_server_asks() {
    let ms = |attempt, asked: Option<u64>, random| {
        delay(&POLICY, attempt, asked.map(Duration::from_secs), random).as_millis()
    };
    assert_eq!([1, 2, 3, 6, 7, 8, 40, 4_000_000].map(|n| ms(n, None, 1.0)), {
        [500, 1000, 2000, 16_000, 30_000, 30_000, 30_000, 30_000]
    });
    assert_eq!((ms(3, None, 0.0), ms(3, None, 0.5)), (0, 1000));
    assert_eq!((ms(1, Some(7), 0.0), ms(1, Some(7), 1.0)), (7000, 7500));
    assert_eq!((ms(1, Some(60), 0.0), ms(1, Some(61), 0.0), ms(1, Some(u64::MAX), 0.0)), (60_000, 60_000, 60_000));
    let drawn: Vec<f64> = (0..200).map(|_| random()).collect();
    assert!(drawn.iter().all(|r| (0.0..=1.0).contains(r)));
    for quarter in [0.0, 0.25, 0.5, 0.75] {
        assert!(drawn.iter().any(|r| (quarter..=quarter + 0.25).contains(r)), "{drawn:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_passes_is_repeated_and_every_wait_is_told() {
    let (log, cancel) = (Log::default(), CancellationToken::new());
    let mut failures = vec![Failed::broken("cut", None), api(529, None), api(429, Some(20))];
    let began = Instant::now();
    let done = retrying(&POLICY, &cancel, &log, || ready(failures.pop().map_or(Ok(5), Err))).await;
    assert!(matches!(done, Ok(5)));
    let wanted = [
        "sent 1",
        "wait 1/10 Some(\"msg_1\")",
        "sent 2",
        "wait 2/10 Some(\"msg_1\")",
        "sent 3",
        "wait 3/10 None",
        "sent 4",
    ];
    assert_eq!(log.lines(), wanted);
    let waited = began.elapsed();
    assert!(waited >= Duration::from_secs(20) && waited <= Duration::from_millis(23_600), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn repetitions_end_at_their_number() {
    for (attempts, shown) in [(0, "said"), (1, "said (tried 2 times)"), (10, "said (tried 11 times)")] {
        let (log, cancel) = (Log::default(), CancellationToken::new());
        let mut sent = 0;
        let attempt = || {
            sent += 1;
            ready(Err::<(), _>(api(503, None)))
        };
        let error = retrying(&Retry { attempts, ..POLICY }, &cancel, &log, attempt).await;
        assert!(matches!(&error, Err(ModelError::Api { status: 503, message }) if message == shown), "{error:?}");
        assert_eq!(sent, attempts + 1);
    }
}

#[tokio::test(start_paused = true)]
async fn what_lasts_is_not_repeated() {
    let (log, cancel) = (Log::default(), CancellationToken::new());
    let error = retrying(&POLICY, &cancel, &log, || ready(Err::<(), _>(api(401, None)))).await;
    assert!(matches!(&error, Err(ModelError::Api { status: 401, message }) if message == "said"), "{error:?}");
    assert_eq!(log.lines(), ["sent 1"]);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_ends_an_attempt_and_a_wait_at_once() {
    let attempts: [&dyn Fn() -> Option<Failed>; 2] = [&|| Some(api(429, Some(60))), &|| None];
    for fails_with in attempts {
        let (log, cancel) = (Log::default(), CancellationToken::new());
        let began = Instant::now();
        let attempt = || async {
            match fails_with() {
                Some(failed) => Err::<(), _>(failed),
                None => std::future::pending().await,
            }
        };
        let call = retrying(&POLICY, &cancel, &log, attempt);
        let stop = async {
            let _ = tokio::time::timeout(Duration::from_secs(3), std::future::pending::<()>()).await;
            cancel.cancel();
        };
        let (done, ()) = tokio::join!(call, stop);
        assert!(matches!(done, Err(ModelError::Cancelled)));
        assert_eq!(began.elapsed(), Duration::from_secs(3));
    }
    let (log, cancel) = (Log::default(), CancellationToken::new());
    cancel.cancel();
    assert!(matches!(retrying(&POLICY, &cancel, &log, || ready(Ok(()))).await, Err(ModelError::Cancelled)));
}
