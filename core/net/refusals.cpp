// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/net/peer_shares.hpp>
#include <verbena/core/net/refusals.hpp>

#include <string>
#include <utility>

namespace verbena {

namespace {

constexpr std::string_view clients_of_export = "clients of the export";
constexpr std::string_view clients_of_device = "clients of the device";

// In the order of `refused`.
constexpr std::array<refusal_rule, refused_count> rules{{
    {"connection", "address", "clients of exports and devices",
     "add the address to clients of an export or device ([[nfs.export]], [[block.device]])"},
    {"connection", "security", "security flavors: AUTH_SYS and AUTH_NONE alone", "mount with sec=sys"},
    {"connection", "peer_connections", "peer_connections of [daemon]",
     "raise peer_connections of [daemon]; clients behind one address (NAT) share it"},
    {"connection", "peer_handshakes", "peer_connections of [daemon]",
     "see what the host connects and says nothing by, or raise peer_connections of [daemon]"},
    {"connection", "peer_calls_left", "memory of calls whose connections have ended: a quarter of memory_mib",
     "see which export hangs (verbena_blocking_longest_seconds), or raise memory_mib of [daemon]"},
    {"connection", "connections", "connections of [daemon]", "raise connections of [daemon]"},
    {"connection", "waiting", "connections that wait for the service",
     "see what holds a shard (verbena_shard_stall_seconds_total)"},
    {"connection", "descriptors", "LimitNOFILE of the unit (ulimit -n)",
     "raise LimitNOFILE= of the unit or ulimit -n, and start again"},
    {"connection", "evicted", "an operator keeps the address out",
     "wait, or `verbena admin evict ADDRESS 0`"},
    {"export", "address", clients_of_export,
     "add the address to clients of the export ([[nfs.export]]; clients= of --export)"},
    {"export", "transport", "transports of the export",
     "add the transport to transports of the export, or mount with one of them (proto=)"},
    {"export", "port", "secure of the export",
     "have the client use a port below 1024 (mount -o resvport), or set secure = false for the export"},
    {"export", "read_only", "read_only of the export",
     "mount with ro, or set read_only = false for the export", log_level::info},
    {"export", "unknown", "paths of exports", "mount a path that `showmount -e` lists, or export this one",
     log_level::info, false},
    {"client", "clients", "clients of [nfs.limits]", "raise clients of [nfs.limits]", log_level::warning,
     false},
    {"client", "peer_clients", "clients_per_peer of [nfs.limits]", "raise clients_per_peer of [nfs.limits]",
     log_level::warning, false},
    {"client", "name", "one name, one client",
     "give each client a name of its own, by nfs.nfs4_unique_id or its host name (docs/howto/nfs4.md)",
     log_level::warning, false},
    {"client", "sessions", "sessions of [nfs.limits]", "raise sessions of [nfs.limits]", log_level::warning,
     false},
    {"client", "opens", "opens of [nfs.limits]", "raise opens of [nfs.limits]"},
    {"client", "locks", "locks of [nfs.limits]", "raise locks of [nfs.limits]"},
    {"client", "owner_names", "owner_names_mib of [nfs.limits]", "raise owner_names_mib of [nfs.limits]"},
    {"client", "evicted", "an operator keeps the client out", "wait, or `verbena admin evict CLIENT 0`",
     log_level::warning, false},
    {"layout", "stranger", "clients that have layouts",
     "see whether the client reaches the server by another address, or asks with layouts of an earlier "
     "start"},
    {"layout", "connections", "data connections of one client",
     "see what the client connects by; Linux makes one for each server"},
    {"session", "address", clients_of_device,
     "add the address to clients of a device ([[block.device]]; clients= of --device)", log_level::warning,
     false},
    {"session", "name", "one name, one session", "give each client a session name of its own",
     log_level::warning, false},
    {"session", "peer_connections", "connections_per_peer of [block]",
     "raise connections_per_peer of [block]", log_level::warning, false},
    {"session", "peer_half_made", "a quarter of sessions of [block]",
     "wait until the host's other clients have connected, or raise sessions of [block]", log_level::info,
     false},
    {"session", "peer_sessions", "sessions_per_peer of [block]", "raise sessions_per_peer of [block]",
     log_level::warning, false},
    {"session", "sessions", "sessions of [block]", "raise sessions of [block], or end sessions",
     log_level::warning, false},
    {"session", "peer_memory", "peer_memory_mib of [daemon]",
     "raise peer_memory_mib of [daemon], make queue_depth of [block] smaller, or end a session of the host",
     log_level::warning, false},
    {"session", "memory", "memory_mib of [daemon]",
     "raise memory_mib of [daemon], make queue_depth of [block] smaller, or end sessions", log_level::warning,
     false},
    {"device", "unknown", "names of devices", "ask for a device that is served, or add it ([[block.device]])",
     log_level::warning, false},
    {"device", "address", clients_of_device,
     "add the address to clients of the device ([[block.device]]; clients= of --device)"},
    {"device", "session", "session of the device",
     "map with the session's name that the device asks for, or change session of the device"},
    {"device", "read_only", "read_only of the device",
     "map with access_mode=ro, or set read_only = false for the device"},
    {"device", "in_use", "one client that writes",
     "end the other client, map with access_mode=ro, or with access_mode=migration where it moves"},
    {"device", "open_devices", "devices that a session may have open: 1024", "map them by several sessions"},
}};

std::array<std::atomic<std::uint64_t>, refused_count> counts;

refusal_lines& lines()
{
    static refusal_lines all;
    return all;
}

std::uint64_t mix(std::uint64_t hash, std::string_view text) noexcept
{
    for (const char c : text)
        hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U; // FNV-1a
    return (hash ^ 0xff) * 1099511628211U;                              // no byte of UTF-8
}

} // namespace

const refusal_rule& rule_of(refused why) noexcept { return rules[std::size_t(why)]; }

std::uint64_t refusals(refused why) noexcept
{
    return counts[std::size_t(why)].load(std::memory_order_relaxed);
}

namespace {

template<std::size_t... Is>
std::array<log_limiter, sizeof...(Is)> limiters(std::index_sequence<Is...>) noexcept
{
    return {((void)Is, log_limiter(refusal_lines::burst, refusal_lines::interval))...};
}

} // namespace

refusal_lines::refusal_lines() noexcept : of_reason_(limiters(std::make_index_sequence<refused_count>())) {}

bool refusal_lines::admit(refused why, const refusal& r, std::chrono::steady_clock::time_point now,
                          std::uint64_t& untold) noexcept
{
    std::uint64_t key = 14695981039346656037U + std::uint64_t(why);
    try {
        // A host chooses among the addresses of its prefix, and asks for any name.
        key = mix(key, peer_group(r.peer));
        if (rule_of(why).is_ours)
            key = mix(key, r.object);
    } catch (...) { // without memory one line stands for all
    }
    key |= 1;
    place& here = places_[(key >> 32) % places];
    const auto tick = now.time_since_epoch().count();
    const bool is_same = here.key.load(std::memory_order_relaxed) == key;
    if (is_same && tick - here.told.load(std::memory_order_relaxed) <
                       std::chrono::duration_cast<std::chrono::steady_clock::duration>(again_after).count()) {
        here.untold.fetch_add(1, std::memory_order_relaxed);
        return false;
    }
    std::uint64_t of_others = 0;
    if (!of_reason_[std::size_t(why)].admit(now, of_others))
        return false;
    here.key.store(key, std::memory_order_relaxed);
    here.told.store(tick, std::memory_order_relaxed);
    untold = of_others + here.untold.exchange(0, std::memory_order_relaxed);
    return true;
}

void count_refusal(refused why) noexcept { counts[std::size_t(why)].fetch_add(1, std::memory_order_relaxed); }

void tell_refusal(refused why, const refusal& r) noexcept
{
    count_refusal(why);
    const refusal_rule& rule = rule_of(why);
    std::uint64_t untold = 0;
    if (!log_enabled(rule.level) || !lines().admit(why, r, std::chrono::steady_clock::now(), untold))
        return;
    try {
        std::string limit(r.limit.empty() ? rule.limit : r.limit);
        if (r.most != 0)
            limit += ": " + std::to_string(r.most);
        if (!r.said.empty())
            limit.append(" (").append(r.said).append(")");
        const log_field peer("peer", r.peer), object(rule.of, r.object), reason("reason", rule.reason);
        const log_field by("limit", limit), cure("cure", r.cure.empty() ? rule.cure : r.cure);
        if (untold == 0)
            log(rule.level, "peers", "turned away", {peer, object, reason, by, cure});
        else
            log(rule.level, "peers", "turned away", {peer, object, reason, by, cure, {"untold", untold}});
    } catch (...) { // without memory the count tells it
    }
}

metric_registrations expose_refusals(metric_registry& registry)
{
    metric_group group(registry);
    group.add({"verbena_refused_total",
               "How often peers were turned away, by what they wanted and which rule or limit was in the "
               "way; the log "
               "names the peer and the cure.",
               metric_type::counter,
               "refusals",
               {"of", "reason"},
               refused_count},
              [](metric_sink& out) {
                  for (std::size_t i = 0; i < refused_count; ++i)
                      out.value({rules[i].of, rules[i].reason}, double(refusals(refused(i))));
              });
    return group.take();
}

} // namespace verbena
