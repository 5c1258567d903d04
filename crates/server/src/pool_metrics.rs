//! Numbers of pools for Prometheus: slots by state, who waits, how long waits and resets take, what went wrong.

use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use std::fmt::Error;
use workroom_engine::{PoolNumbers, Spread};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfPool {
    owner: String,
    pool: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfState {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfEnd {
    end: &'static str,
}

/// A name, what it means, and how it is found.
type Number<T> = (&'static str, &'static str, fn(&PoolNumbers) -> T);
type Times = (&'static str, &'static str, fn(&PoolNumbers) -> &Spread);

pub(crate) fn encode(encoder: &mut DescriptorEncoder<'_>, pools: &[PoolNumbers]) -> Result<(), Error> {
    if pools.is_empty() {
        return Ok(());
    }
    let mut family =
        encoder.encode_descriptor("pool_slots", "Slots of a pool, by state", None, MetricType::Gauge)?;
    for pool in pools {
        let states = &pool.states;
        for (state, count) in [
            ("available", states.available),
            ("acquired", states.acquired),
            ("executing", states.executing),
            ("resetting", states.resetting),
            ("error", states.error),
        ] {
            let labels = (of(pool), OfState { state });
            family.encode_family(&labels)?.encode_gauge(&i64::from(count))?;
        }
    }
    let gauges: [Number<f64>; 3] = [
        ("pool_utilisation", "The share of slots that somebody has", |pool| pool.metrics.utilisation),
        ("pool_spares", "Rooms that are ready beside the slots", |pool| f64::from(pool.spares)),
        ("pool_waiting", "Calls that wait for a slot", |pool| f64::from(pool.waiting)),
    ];
    for (name, help, value) in gauges {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        each(&mut family, pools, |metric, pool| metric.encode_gauge(&value(pool)))?;
    }
    let mut family = encoder.encode_descriptor(
        "pool_leases",
        "Leases that are over, by how",
        None,
        MetricType::Counter,
    )?;
    for pool in pools {
        for (end, count) in [("released", pool.metrics.released), ("expired", pool.metrics.expired)] {
            let labels = (of(pool), OfEnd { end });
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
    }
    let counters: [Number<u64>; 3] = [
        ("pool_acquired", "Leases that began", |pool| pool.metrics.acquired),
        ("pool_refused", "Calls that got no slot in time", |pool| pool.metrics.refused),
        ("pool_failures", "Rooms that could not be made or were of no use", |pool| pool.metrics.failures),
    ];
    for (name, help, value) in counters {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        each(&mut family, pools, |metric, pool| {
            metric.encode_counter::<NoLabelSet, _, u64>(&value(pool), None)
        })?;
    }
    let spreads: [Times; 2] = [
        ("pool_wait_seconds", "From a call until it has a slot", |pool| &pool.waits),
        ("pool_reset_seconds", "From a slot's release until it is as new", |pool| &pool.resets),
    ];
    for (name, help, value) in spreads {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        each(&mut family, pools, |metric, pool| {
            let spread = value(pool);
            // Each bucket by itself; what is beyond the last is in the one without a bound.
            let mut before = 0;
            let mut buckets: Vec<(f64, u64)> = Vec::new();
            for (bound, so_far) in &spread.buckets {
                buckets.push((*bound, so_far - before));
                before = *so_far;
            }
            buckets.push((f64::MAX, spread.count - before));
            metric.encode_histogram::<NoLabelSet>(spread.sum, spread.count, &buckets, None)
        })?;
    }
    Ok(())
}

fn each(
    family: &mut MetricEncoder<'_>,
    pools: &[PoolNumbers],
    mut one: impl FnMut(&mut MetricEncoder<'_>, &PoolNumbers) -> Result<(), Error>,
) -> Result<(), Error> {
    for pool in pools {
        one(&mut family.encode_family(&of(pool))?, pool)?;
    }
    Ok(())
}

fn of(pool: &PoolNumbers) -> OfPool {
    OfPool { owner: pool.owner.clone(), pool: pool.pool.clone() }
}
