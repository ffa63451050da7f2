// SPDX-License-Identifier: Apache-2.0
#include "../metrics.hpp"

#include "server_parts.hpp"

#include <verbena/core/resource_metrics.hpp>
#include <verbena/protocols/nfs/server/v4/pnfs/service.hpp>
#include <verbena/protocols/nfs/server/v4/server.hpp>

#include <array>

namespace verbena::nfs {

namespace {

// Of what clients of version 4 have; those that are none are left out.
metric_family limit_refusals()
{
    return {"verbena_nfs4_limit_refusals_total",
            "What clients of version 4 were refused for a limit, by what it limits and whose it is: the "
            "client's, its peer's, all clients', or "
            "the file's. A delegation, or a place among those that wait for a lock, is not given, and "
            "nothing else.",
            metric_type::counter,
            "refusals",
            {"limit", "of"},
            files::limit_counters::kinds * files::limit_counters::scopes};
}

void show_limits(metric_sink& out, const files::limit_counters& refused)
{
    static constexpr std::array<std::string_view, files::limit_counters::kinds> kinds = {
        "clients",     "sessions",    "opens",        "locks",  "lock_owners",
        "owner_names", "delegations", "lock_waiters", "owners", "other_states"};
    static constexpr std::array<std::string_view, files::limit_counters::scopes> scopes = {"client", "peer",
                                                                                           "all", "file"};
    for (std::size_t what = 0; what < kinds.size(); ++what) {
        for (std::size_t whose = 0; whose < scopes.size(); ++whose) {
            const std::uint64_t count = refused.value(files::limited(what), files::limit_of(whose));
            if (count != 0)
                out.value({kinds[what], scopes[whose]}, static_cast<double>(count));
        }
    }
}

// What calls heard of names, for which a shard's own are as good as known.
metric_family name_answers()
{
    return {"verbena_nfs4_user_name_answers_total",
            "Names and numbers of users and groups that calls of version 4 wanted: cached, looked_up (the "
            "call waited for it), late (it was not there in time), refused (too many lookups were under "
            "way), or foreign (the name has another domain, and is refused). Where it is late or refused "
            "the client gets the number in the place of the name, or is asked to come again.",
            metric_type::counter,
            "answers",
            {"result"},
            v4::user_names_counters::answers};
}

void expose_names(metric_registry& registry, const v4::user_names_counters& names, metric_registrations& made)
{
    made.push_back(registry.add(name_answers(), [&names](metric_sink& out) {
        static constexpr std::array<std::string_view, v4::user_names_counters::answers> results = {
            "cached", "looked_up", "late", "refused", "foreign"};
        for (std::size_t i = 0; i < results.size(); ++i)
            show(out, results[i], names.given[i]);
    }));
    made.push_back(registry.add(
        {"verbena_nfs4_user_name_lookups_total",
         "Lookups in the sources of nsswitch.conf, of a number by its name or the other way, by what came "
         "of them: found, unknown (there is nobody of that name or number), or failed.",
         metric_type::counter,
         "lookups",
         {"of", "result"},
         2 * v4::user_names_counters::outcomes},
        [&names](metric_sink& out) {
            static constexpr std::array<std::string_view, v4::user_names_counters::outcomes> results = {
                "found", "unknown", "failed"};
            for (std::size_t i = 0; i < results.size(); ++i) {
                out.value({"number", results[i]}, value_of(names.ids[i]));
                out.value({"name", results[i]}, value_of(names.names[i]));
            }
        }));
    made.push_back(
        registry.add({"verbena_nfs4_user_name_lookups_under_way",
                      "Of these lookups, those that are under way.", metric_type::gauge, "lookups"},
                     names.under_way));
    made.push_back(registry.add({"verbena_nfs4_user_names_cached",
                                 "Names and numbers of users and groups that are kept, and those that are "
                                 "kept as unknown.",
                                 metric_type::gauge, "entries"},
                                names.cached));
}

void expose_layouts(metric_registry& registry, const v4::server_commons& commons, metric_registrations& made)
{
    // `show(sink, service)` where there are layouts.
    const auto of_service = [&commons](auto show) {
        return [&commons, show](metric_sink& out) {
            if (commons.pnfs != nullptr)
                show(out, *commons.pnfs.load());
        };
    };
    using service = v4::pnfs::service;
    made.push_back(registry.add({"verbena_nfs4_layout_segments",
                                 "Answers to LAYOUTGET that clients have not returned: ranges of files that "
                                 "they read and write by RDMA.",
                                 metric_type::gauge, "segments"},
                                of_service([](metric_sink& out, const service& s) {
                                    out.value({}, double(s.layouts().counts().segments));
                                })));
    made.push_back(registry.add({"verbena_nfs4_layout_grants_total", "Of these, how many were given.",
                                 metric_type::counter, "segments"},
                                of_service([](metric_sink& out, const service& s) {
                                    out.value({}, double(s.layouts().counts().granted));
                                })));
    made.push_back(
        registry.add({"verbena_nfs4_layout_fences_total",
                      "Of these, how many are out of their clients' reach again, returned or taken.",
                      metric_type::counter, "segments"},
                     of_service([](metric_sink& out, const service& s) {
                         out.value({}, double(s.layouts().counts().revoked));
                     })));
    made.push_back(registry.add({"verbena_nfs4_layout_connections",
                                 "Connections of clients to the data server of RDMA layouts.",
                                 metric_type::gauge, "connections"},
                                of_service([](metric_sink& out, const service& s) {
                                    out.value({}, double(s.connections().connections));
                                })));
    made.push_back(registry.add({"verbena_nfs4_layout_connects_total",
                                 "Requests for such a connection: accepted, or rejected (the client is not "
                                 "known, has as many as it may, or there is no "
                                 "room).",
                                 metric_type::counter,
                                 "requests",
                                 {"result"},
                                 2},
                                of_service([](metric_sink& out, const service& s) {
                                    const auto counts = s.connections();
                                    out.value({"accepted"}, double(counts.accepted));
                                    out.value({"rejected"}, double(counts.rejected));
                                })));
}

// Limits of [nfs.limits] beside what clients have.
void expose_resources(metric_registry& registry, const v4::server_commons& commons,
                      metric_registrations& made)
{
    metric_group group(registry);
    const state_home& state = commons.state;
    const v4::session_table& sessions = commons.sessions;
    using stats = files::state_stats;
    using limits = files::limits;
    add_resource(
        group, "nfs4_clients",
        [&state] { return state.stats().clients.value() - state.stats().hosts.value(); },
        [&sessions] { return sessions.limits().clients; });
    add_resource(
        group, "nfs4_sessions", [&sessions] { return sessions.sessions(); },
        [&sessions] { return sessions.limits().sessions; });
    add_resource(
        group, "nfs4_slot_memory", [&sessions] { return sessions.slot_bytes(); },
        [&sessions] { return sessions.limits().slot_bytes; });
    const auto of_state = [&](const char* name, gauge stats::* used,
                              adjustable<std::size_t> files::changeable_limits::* most) {
        add_resource(
            group, name, [&state, used] { return state.total(used); },
            [&state, most] { return state.options().limits.*most; });
    };
    of_state("nfs4_opens", &stats::opens, &limits::opens);
    of_state("nfs4_locks", &stats::locks, &limits::locks);
    of_state("nfs4_lock_owners", &stats::lock_states, &limits::lock_states);
    of_state("nfs4_owner_names_memory", &stats::owner_names, &limits::owner_names);
    append(made, group.take());
}

// What a count of the state layer is over all homes.
template<class Count>
metric_registry::collector total_of(const state_home& state, Count files::state_stats::* what)
{
    return [&state, what](metric_sink& out) { out.value({}, double(state.total(what))); };
}

} // namespace

metric_registrations v4::server::expose(metric_registry& registry) const
{
    const server_counters& nfs = counters();
    metric_registrations made;
    made.push_back(registry.add(read_bytes(), nfs.bytes_read));
    made.push_back(registry.add(written_bytes(), nfs.bytes_written));
    made.push_back(registry.add(refusals(), [&nfs](metric_sink& out) {
        show(out, nfs.refused);
        show(out, "handle", nfs.refused_handle);
        show(out, "export", nfs.refused_export);
    }));
    made.push_back(registry.add(
        {"verbena_nfs4_operations_total",
         "Operations of version 4 that were answered: ok, later (the client is asked to come again: DELAY, "
         "GRACE), or failed (any other status, also where it is an answer, such as NOENT). ILLEGAL stands "
         "for "
         "numbers that are none.",
         metric_type::counter,
         "operations",
         {"operation", "result"},
         server_counters::kinds * server_counters::classes},
        [&nfs](metric_sink& out) {
            static constexpr std::array<std::string_view, server_counters::classes> results = {"ok", "later",
                                                                                               "failed"};
            for (std::size_t i = 0; i < server_counters::kinds; ++i) {
                for (std::size_t how = 0; how < results.size(); ++how) {
                    const counter& count = nfs.operations[i][how];
                    if (count.value() == 0)
                        continue;
                    const auto operation = i == 0 ? v4::nfs_opnum4::illegal : v4::nfs_opnum4(i);
                    out.value({v4::to_string(operation), results[how]}, static_cast<double>(count.value()));
                }
            }
        }));
    made.push_back(registry.add(errors(), [&nfs](metric_sink& out) {
        show(out, "4", nfs.errors, [](std::uint32_t operation, std::uint32_t status) {
            return std::pair(
                v4::to_string(operation == 0 ? v4::nfs_opnum4::illegal : v4::nfs_opnum4(operation)),
                v4::to_string(v4::nfsstat4(status)));
        });
    }));
    made.push_back(registry.add({"verbena_nfs4_operation_seconds",
                                 "How long operations of version 4 took: from the end of the one before in "
                                 "the COMPOUND, or from when it begins, to the "
                                 "operation's end. Those that only name what the next one is about, such as "
                                 "PUTFH, and SEQUENCE are not there.",
                                 metric_type::histogram,
                                 "seconds",
                                 {"operation"},
                                 server_counters::kinds},
                                [&nfs](metric_sink& out) {
                                    for (std::size_t i = 0; i < server_counters::kinds; ++i) {
                                        histogram_snapshot h;
                                        nfs.times[i].add_to(h);
                                        if (h.count() != 0)
                                            out.histogram({v4::to_string(v4::nfs_opnum4(i))}, h);
                                    }
                                }));
    made.push_back(registry.add(
        {"verbena_nfs4_replays_total",
         "Calls of version 4.1 that were repeats and were answered with the reply that their slot had kept.",
         metric_type::counter, "calls"},
        nfs.replays));
    made.push_back(
        registry.add(limit_refusals(), [&nfs](metric_sink& out) { show_limits(out, nfs.refused_limits); }));
    made.push_back(
        registry.add(name_answers(), [&nfs](metric_sink& out) { show(out, "cached", nfs.known_names); }));
    // What all shards share is told by one.
    if (!parts_->commons.state.is_home(parts_->here))
        return made;
    if (parts_->commons.users != nullptr)
        expose_names(registry, parts_->commons.users->counters(), made);
    const state_home& state = parts_->commons.state;
    using stats = files::state_stats;
    made.push_back(registry.add({"verbena_nfs4_delegations",
                                 "Delegations that clients of version 4 hold.",
                                 metric_type::gauge,
                                 "delegations",
                                 {"type"},
                                 2},
                                [&state](metric_sink& out) {
                                    out.value({"read"}, double(state.total(&stats::read_delegations)));
                                    out.value({"write"}, double(state.total(&stats::write_delegations)));
                                }));
    made.push_back(registry.add({"verbena_nfs4_recalls_total",
                                 "Delegations and layouts that clients were asked to return.",
                                 metric_type::counter, "delegations"},
                                total_of(state, &stats::recalls)));
    made.push_back(
        registry.add({"verbena_nfs4_recalls_ended_total",
                      "Of those, how many are back or were revoked; verbena_nfs4_recall_seconds_total is how "
                      "long that took, all together.",
                      metric_type::counter, "delegations"},
                     total_of(state, &stats::ended_recalls)));
    made.push_back(registry.add({"verbena_nfs4_recall_seconds_total",
                                 "From a recall until the delegation or layout is back or revoked.",
                                 metric_type::counter, "seconds"},
                                [&state](metric_sink& out) {
                                    out.value({}, double(state.total(&stats::recall_microseconds)) / 1e6);
                                }));
    made.push_back(registry.add(
        {"verbena_nfs4_revocations_total",
         "Delegations and layouts that were revoked, as their clients did not return them in time.",
         metric_type::counter, "delegations"},
        total_of(state, &stats::revocations)));
    made.push_back(registry.add(
        {"verbena_nfs4_distrusted_clients_total",
         "Clients that let several delegations be revoked though their leases ran. Each gets none for 15 "
         "minutes, and what it has is recalled at once.",
         metric_type::counter, "clients"},
        total_of(state, &stats::distrusted_clients)));
    made.push_back(registry.add(
        {"verbena_nfs4_fences",
         "What clients of version 4 had and is being put out of their reach: memory that they read and write "
         "by themselves. Others wait for that where they want the file.",
         metric_type::gauge, "states"},
        total_of(state, &stats::fences)));
    made.push_back(registry.add({"verbena_nfs4_fences_ended_total",
                                 "Of these, how many are out of reach; verbena_nfs4_fence_seconds_total is "
                                 "how long that took, all together.",
                                 metric_type::counter, "states"},
                                total_of(state, &stats::ended_fences)));
    made.push_back(registry.add({"verbena_nfs4_fence_seconds_total",
                                 "From the end of what a client had until it is out of its reach.",
                                 metric_type::counter, "seconds"},
                                [&state](metric_sink& out) {
                                    out.value({}, double(state.total(&stats::fence_microseconds)) / 1e6);
                                }));
    made.push_back(
        registry.add({"verbena_nfs4_failed_fences_total",
                      "How often a fence of verbena_nfs4_fences failed. Each is tried again after a second.",
                      metric_type::counter, "attempts"},
                     total_of(state, &stats::failed_fences)));
    made.push_back(registry.add({"verbena_nfs4_late_fences_total",
                                 "Of these, those that took 10 s or longer.", metric_type::counter, "states"},
                                total_of(state, &stats::late_fences)));
    const callback_counters& calls = parts_->commons.callbacks.counters();
    made.push_back(registry.add(
        {"verbena_nfs4_callbacks_total",
         "Calls to clients of version 4, by what came of them: ok, later (it is made again, as the client "
         "asks for time or does not know the delegation or layout yet), failed, unanswered (no reply in 10 "
         "s, or the "
         "connection went: it is made again), unreachable (the client has no connection for them: once until "
         "it has).",
         metric_type::counter,
         "calls",
         {"operation", "result"},
         callback_counters::kinds * callback_counters::outcomes},
        [&calls](metric_sink& out) {
            static constexpr std::array<std::string_view, callback_counters::kinds> kinds = {
                "CB_RECALL", "CB_RECALL_ANY", "CB_NOTIFY_LOCK", "CB_GETATTR", "CB_LAYOUTRECALL"};
            static constexpr std::array<std::string_view, callback_counters::outcomes> outcomes = {
                "ok", "later", "failed", "unanswered", "unreachable"};
            for (std::size_t k = 0; k < kinds.size(); ++k)
                for (std::size_t o = 0; o < outcomes.size(); ++o)
                    out.value({kinds[k], outcomes[o]}, static_cast<double>(calls.calls[k][o].value()));
        }));
    made.push_back(registry.add({"verbena_nfs4_layout_refusals_total",
                                 "LAYOUTGETs that gave no layout, by why: recalled (the client is to return "
                                 "what it has of the file), later (for "
                                 "limits, or others who use the file), unavailable (there are none of the "
                                 "file, or for this client), device (it reaches memory alone, and the "
                                 "files are not in memory), or failed (for "
                                 "what was asked, or who asks).",
                                 metric_type::counter,
                                 "refusals",
                                 {"reason"},
                                 5},
                                [&nfs](metric_sink& out) {
                                    show(out, "recalled", nfs.layouts_recalled);
                                    show(out, "later", nfs.layouts_later);
                                    show(out, "unavailable", nfs.layouts_unavailable);
                                    show(out, "device", nfs.layouts_beyond_device);
                                    show(out, "failed", nfs.layouts_failed);
                                }));
    made.push_back(registry.add(
        {"verbena_nfs4_layout_errors_total",
         "What clients say failed by a layout (LAYOUTERROR), by the status that they say: io, nxio "
         "(no device), access, delay, or other.",
         metric_type::counter,
         "errors",
         {"error"},
         server_counters::layout_faults},
        [&nfs](metric_sink& out) {
            static constexpr std::array<std::string_view, server_counters::layout_faults> names = {
                "io", "nxio", "access", "delay", "other"};
            for (std::size_t i = 0; i < names.size(); ++i)
                show(out, names[i], nfs.layout_errors[i]);
        }));
    made.push_back(
        registry.add({"verbena_nfs4_layout_bytes_total",
                      "Bytes that clients say they have moved by layouts (LAYOUTSTATS), by direction: "
                      "read or write.",
                      metric_type::counter,
                      "bytes",
                      {"direction"},
                      2},
                     [&nfs](metric_sink& out) {
                         show(out, "read", nfs.layout_bytes_read);
                         show(out, "write", nfs.layout_bytes_written);
                     }));
    made.push_back(registry.add(
        {"verbena_nfs4_callbacks_lost_total",
         "Calls to clients of version 4 that were not made for want of memory, and notices of free "
         "locks to clients that have not heard of very many others yet.",
         metric_type::counter, "calls"},
        [&calls](metric_sink& out) {
            out.value({}, static_cast<double>(calls.lost.value() + calls.lost_elsewhere.load()));
        }));
    return made;
}

metric_registrations v4::server_commons::expose(metric_registry& registry) const
{
    using stats = files::state_stats;
    const stats& s = state.stats(); // what of them the book counts alone
    metric_registrations made;
    // The samples of homes have equal labels, and are added up.
    const auto of_each_home = [this](auto show) {
        return [this, show](metric_sink& out) { state.each_stats([&](const stats& of) { show(out, of); }); };
    };
    made.push_back(registry.add(
        {"verbena_nfs4_grace",
         "The grace period of version 4 after a restart: 0 over, 1 clients take back what they had open, "
         "2 its end is being written. Until it is over nothing new is opened, locked, removed or renamed.",
         metric_type::gauge, ""},
        s.grace));
    made.push_back(registry.add(
        {"verbena_nfs4_grace_clients",
         "Clients of version 4 that may take back what they had open before the restart, and have not "
         "said that they are done.",
         metric_type::gauge, "clients"},
        s.to_reclaim));
    made.push_back(registry.add(
        {"verbena_nfs4_grace_recorded_clients",
         "Clients of version 4 that had something open before the restart, and may take it back in grace.",
         metric_type::gauge, "clients"},
        s.grace_recorded));
    made.push_back(registry.add({"verbena_nfs4_grace_done_clients",
                                 "Of the recorded clients, those that have said that they took back all. "
                                 "Those of version 4.0 never say so.",
                                 metric_type::gauge, "clients"},
                                s.grace_done));
    made.push_back(registry.add({"verbena_nfs4_grace_absent_clients",
                                 "Of the recorded clients, those that have not come back; when grace is "
                                 "over, that had not come back at "
                                 "its end. `verbena admin grace` names them.",
                                 metric_type::gauge, "clients"},
                                s.grace_absent));
    made.push_back(registry.add({"verbena_nfs4_reclaims_total",
                                 "Opens and locks that clients of version 4 took back after a restart: "
                                 "granted, or refused as late (the grace period is "
                                 "over, or the client has said that it is done), unknown (the client is not "
                                 "in the list), or conflict (another client has "
                                 "taken it back).",
                                 metric_type::counter,
                                 "reclaims",
                                 {"outcome"},
                                 4},
                                of_each_home([](metric_sink& out, const stats& of) {
                                    show(out, "granted", of.reclaims);
                                    show(out, "late", of.late_reclaims);
                                    show(out, "unknown", of.bad_reclaims);
                                    show(out, "conflict", of.conflicting_reclaims);
                                })));
    made.push_back(registry.add(
        {"verbena_nfs4_recovery_store_failures_total",
         "Changes of the list of clients that may reclaim after a restart that could not be written. Who "
         "needs one is told to come again.",
         metric_type::counter, "changes"},
        s.store_failures));
    made.push_back(registry.add(
        {"verbena_nfs4_clients",
         "Clients of version 4 that the server knows: active, courtesy (the lease is over, and what they "
         "have "
         "is kept until somebody needs it), or gone (somebody did; they have not come back to hear of it).",
         metric_type::gauge,
         "clients",
         {"state"},
         3},
        [&s](metric_sink& out) {
            const auto courtesy = s.courtesy_clients.value(), lost = s.lost_clients.value();
            out.value({"active"}, static_cast<double>(s.clients.value() - s.hosts.value() - courtesy - lost));
            out.value({"courtesy"}, static_cast<double>(courtesy));
            out.value({"gone"}, static_cast<double>(lost));
        }));
    const callback_paths& paths = v40.paths();
    made.push_back(registry.add(
        {"verbena_nfs4_callback_paths",
         "Clients of version 4.0 that say where they are called, by whether that works: unknown (not tried "
         "to the end yet), up, or down. Others, and those that are not up, get no delegations.",
         metric_type::gauge,
         "clients",
         {"state"},
         3},
        [&paths](metric_sink& out) {
            using verdict = callback_path::verdict;
            out.value({"unknown"}, static_cast<double>(paths.paths(verdict::unknown).value()));
            out.value({"up"}, static_cast<double>(paths.paths(verdict::up).value()));
            out.value({"down"}, static_cast<double>(paths.paths(verdict::down).value()));
        }));
    made.push_back(registry.add(
        {"verbena_nfs4_callback_connections",
         "Connections that the server makes to call clients of version 4.0; idle ones are closed after 10 s.",
         metric_type::gauge, "connections"},
        paths.connections));
    made.push_back(
        registry.add({"verbena_nfs4_callback_tries_total",
                      "Tries whether a client of version 4.0 can be called.", metric_type::counter, "tries"},
                     paths.tries));
    made.push_back(
        registry.add({"verbena_nfs4_callback_tries_failed_total",
                      "Of these tries, those that a client did not answer.", metric_type::counter, "tries"},
                     paths.failures));
    made.push_back(registry.add(
        {"verbena_nfs4_sessions", "Sessions of clients of version 4.1.", metric_type::gauge, "sessions"},
        [this](metric_sink& out) { out.value({}, static_cast<double>(sessions.sessions())); }));
    made.push_back(registry.add(
        {"verbena_nfs4_slot_bytes", "Memory that the slots of sessions take and may keep.",
         metric_type::gauge, "bytes"},
        [this](metric_sink& out) { out.value({}, static_cast<double>(sessions.slot_bytes())); }));
    const auto level = [&](const char* name, const char* help, const char* unit, gauge stats::* of) {
        made.push_back(registry.add({name, help, metric_type::gauge, unit}, total_of(state, of)));
    };
    level("verbena_nfs4_opens", "Opens that clients of version 4 have: one for each owner and file.", "opens",
          &stats::opens);
    level("verbena_nfs4_locks", "Ranges of bytes that clients of version 4 have locked.", "locks",
          &stats::locks);
    level(
        "verbena_nfs4_lock_owners",
        "Owners of locks, for each file, of clients of version 4; also those that have no range locked now.",
        "owners", &stats::lock_states);
    level("verbena_nfs4_lock_waiters", "Places kept for those that wait for a lock.", "waiters",
          &stats::lock_waiters);
    level("verbena_nfs_lock_hosts",
          "Hosts that lock by NLM, without a lease. What a host has locked stays until it unlocks it or says "
          "that it "
          "has started again.",
          "hosts", &stats::hosts);
    level("verbena_nfs4_files", "Files that clients of version 4 have something of.", "files", &stats::files);
    level("verbena_nfs4_owner_name_bytes", "Names of the owners of opens and locks.", "bytes",
          &stats::owner_names);
    made.push_back(registry.add({"verbena_nfs4_local_recalls_total",
                                 "Delegations that clients were asked to return, or did not get, as a "
                                 "process of this host wants to write, or has changed the file's attributes.",
                                 metric_type::counter, "delegations"},
                                total_of(state, &stats::local_recalls)));
    made.push_back(
        registry.add({"verbena_nfs4_lease_refusals_total",
                      "Read delegations that were not given as the back end got no lease of the file, by "
                      "why: somebody has "
                      "it open for writing, the process may take none, the file system has none, there are "
                      "no descriptors or memory, "
                      "or it failed.",
                      metric_type::counter,
                      "delegations",
                      {"reason"},
                      storage::no_lease_count},
                     of_each_home([](metric_sink& out, const stats& of) {
                         static constexpr std::array<std::string_view, storage::no_lease_count> reasons = {
                             "in_use", "not_permitted", "unsupported", "limit", "failed"};
                         for (std::size_t i = 0; i < reasons.size(); ++i)
                             show(out, reasons[i], of.lease_refusals[i]);
                     })));
    level("verbena_nfs4_revoked_delegations",
          "Delegations and layouts that were revoked, and that their clients have not acknowledged yet.",
          "delegations", &stats::revoked_delegations);
    made.push_back(registry.add(
        {"verbena_nfs4_clients_expired_total",
         "Clients of version 4 whose lease was over and who lost what they had, as somebody needed it.",
         metric_type::counter, "clients"},
        s.expired_clients));
    made.push_back(registry.add({"verbena_nfs4_conflicts_total",
                                 "Opens and locks of version 4 that were refused for what another one has.",
                                 metric_type::counter,
                                 "refusals",
                                 {"of"},
                                 3},
                                of_each_home([](metric_sink& out, const stats& of) {
                                    show(out, "open", of.share_denials);
                                    show(out, "lock", of.lock_denials);
                                    show(out, "local_lock", of.local_lock_denials);
                                })));
    made.push_back(registry.add(limit_refusals(), of_each_home([](metric_sink& out, const stats& of) {
                                    show_limits(out, of.refused_limits);
                                })));
    made.push_back(
        registry.add(limit_refusals(), [this](metric_sink& out) { show_limits(out, v40.refused_limits()); }));
    expose_layouts(registry, *this, made);
    expose_resources(registry, *this, made);
    return made;
}

} // namespace verbena::nfs
