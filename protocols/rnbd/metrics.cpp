// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/rnbd/server.hpp>
#include <verbena/protocols/storage/block_operation.hpp>

#include <algorithm>

namespace verbena::rnbd {

std::string_view to_string(failure f) noexcept
{
    switch (f) {
    case failure::invalid: return "invalid";
    case failure::read_only: return "read_only";
    case failure::unsupported: return "unsupported";
    case failure::no_space: return "no_space";
    case failure::busy: return "busy";
    case failure::stopped: return "stopped";
    case failure::io: return "io";
    case failure::other: return "other";
    case failure::count_: break;
    }
    return "";
}

device_series::~device_series()
{
    for (const auto& p : places_)
        delete p.load(std::memory_order_relaxed);
}

device_counters& device_series::of(std::size_t number, const std::string& name)
{
    auto& place = places_[std::min(number, max_devices)];
    device_counters* there = place.load(std::memory_order_relaxed);
    if (there == nullptr) {
        there = new device_counters(number < max_devices ? name : std::string("other"));
        place.store(there, std::memory_order_release);
    }
    return *there;
}

namespace {

constexpr std::size_t bound = device_series::max_devices + 1;

std::string_view kind(std::size_t i) noexcept { return to_string(storage::block_operation(i)); }

void expose_devices(metric_group& group, const device_series& all)
{
    static_assert(device_counters::kinds == storage::block_operation_count);
    group.add({"verbena_rnbd_device_operations_total",
               "Operations of a device that have ended.",
               metric_type::counter,
               "operations",
               {"device", "operation"},
               device_counters::kinds * bound},
              [&all](metric_sink& out) {
                  all.each([&](const device_counters& c) {
                      for (std::size_t i = 0; i < device_counters::kinds; ++i)
                          out.value({c.name, kind(i)}, value_of(c.operations[i]));
                  });
              });
    group.add({"verbena_rnbd_device_operation_seconds",
               "How long operations of a device took, waits at filters included.",
               metric_type::histogram,
               "seconds",
               {"device", "operation"},
               device_counters::kinds * bound},
              [&all](metric_sink& out) {
                  all.each([&](const device_counters& c) {
                      for (std::size_t i = 0; i < device_counters::kinds; ++i) {
                          histogram_snapshot h;
                          c.latency[i].add_to(h);
                          out.histogram({c.name, kind(i)}, h);
                      }
                  });
              });
    group.add({"verbena_rnbd_device_bytes_total",
               "Bytes that were read from and written to a device.",
               metric_type::counter,
               "bytes",
               {"device", "direction"},
               2 * bound},
              [&all](metric_sink& out) {
                  all.each([&](const device_counters& c) {
                      out.value({c.name, "read"}, value_of(c.read_bytes));
                      out.value({c.name, "write"}, value_of(c.written_bytes));
                  });
              });
    group.add({"verbena_rnbd_device_failed_operations_total",
               "Operations of a device that were answered with an error, by reason.",
               metric_type::counter,
               "operations",
               {"device", "reason"},
               std::size_t(failure::count_) * bound},
              [&all](metric_sink& out) {
                  all.each([&](const device_counters& c) {
                      for (std::size_t i = 0; i < std::size_t(failure::count_); ++i)
                          out.value({c.name, to_string(failure(i))}, value_of(c.failed[i]));
                  });
              });
    group.add({"verbena_rnbd_device_operations_in_flight",
               "Operations of a device that are under way now.",
               metric_type::gauge,
               "operations",
               {"device"},
               bound},
              [&all](metric_sink& out) {
                  all.each([&](const device_counters& c) { out.value({c.name}, value_of(c.in_flight)); });
              });
}

} // namespace

metric_registrations expose(metric_registry& registry, const device_table& devices)
{
    metric_group group(registry);
    group.add({"verbena_rnbd_open_devices",
               "Sessions that have a device open, by what for.",
               metric_type::gauge,
               "sessions",
               {"device", "access"},
               2 * device_table::max_devices},
              [&devices](metric_sink& out) {
                  for (std::size_t i = 0; i < devices.size(); ++i) {
                      if (devices.is_removed(i))
                          continue;
                      const device_table::users users = devices.users_of(i);
                      out.value({devices.at(i).name, "write"}, users.writers);
                      out.value({devices.at(i).name, "read"}, users.readers);
                  }
              });
    return group.take();
}

metric_registrations expose(metric_registry& registry, const server_stats& s)
{
    metric_group group(registry);
    group.add({"verbena_rnbd_operations_total",
               "Operations on devices.",
               metric_type::counter,
               "operations",
               {"operation"},
               5},
              [&s](metric_sink& out) {
                  out.value({"read"}, value_of(s.reads));
                  out.value({"write"}, value_of(s.writes));
                  out.value({"flush"}, value_of(s.flushes));
                  out.value({"discard"}, value_of(s.discards));
                  out.value({"write_zeroes"}, value_of(s.zeroes));
              });
    group.add({"verbena_rnbd_bytes_total",
               "Bytes that were read from and written to devices.",
               metric_type::counter,
               "bytes",
               {"direction"},
               2},
              [&s](metric_sink& out) {
                  out.value({"read"}, value_of(s.read_bytes));
                  out.value({"write"}, value_of(s.written_bytes));
              });
    group.add_sum({"verbena_rnbd_failed_operations_total", "Operations that were answered with an error.",
                   metric_type::counter, "operations"},
                  s.failed);
    group.add({"verbena_rnbd_opens_total",
               "Requests to open a device.",
               metric_type::counter,
               "requests",
               {"result"},
               2},
              [&s](metric_sink& out) {
                  out.value({"opened"}, value_of(s.opens));
                  out.value({"refused"}, value_of(s.refused_opens));
              });
    group.add({"verbena_rnbd_refused_opens_total",
               "Requests to open a device that were refused, by reason.",
               metric_type::counter,
               "requests",
               {"reason"},
               5},
              [&s](metric_sink& out) {
                  out.value({"unknown"}, value_of(s.refused_unknown));
                  out.value({"not_admitted"}, value_of(s.refused_not_admitted));
                  out.value({"read_only"}, value_of(s.refused_read_only));
                  out.value({"in_use"}, value_of(s.refused_in_use));
                  out.value({"too_many"}, value_of(s.refused_too_many));
              });
    expose_devices(group, s.by_device);
    return group.take();
}

} // namespace verbena::rnbd
