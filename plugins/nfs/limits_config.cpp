// SPDX-License-Identifier: Apache-2.0
#include "limits_config.hpp"

#include <string>

namespace verbena::nfs {

namespace {

constexpr std::uint64_t mib = std::uint64_t(1) << 20;
// A peer's share of fewer would be none.
constexpr number_range of_state{100, 100'000'000};
constexpr number_range of_few{1, 1'000'000};
constexpr number_range of_mib{1, 65'536};

std::size_t part_of(const setting_values& values, const std::string& name, const std::string& whole)
{
    const std::uint64_t part = values.number(name), all = values.number(whole);
    if (part <= all)
        return part;
    if (values.written(name))
        throw config_error(values.place(name), "nfs.limits." + name + ": " + std::to_string(part) +
                                                   " is more than " + whole + ", which is " +
                                                   std::to_string(all) + ": raise " + whole + " or lower " +
                                                   name);
    return all;
}

} // namespace

std::vector<setting> limit_settings()
{
    const v4::session_limits sessions;
    const files::limits state;
    const v4::pnfs::layout_limits layouts;
    return {
        setting::number("clients", of_few, sessions.clients, "Clients of version 4 that are known at once"),
        setting::number(
            "clients_per_peer", of_few, sessions.clients_per_peer,
            "Of these, those of one peer: an IPv4 address, or the first 64 bits of an IPv6 address"),
        setting::number("sessions", of_few, sessions.sessions, "Sessions of version 4.1"),
        setting::number("sessions_per_client", of_few, sessions.sessions_per_client,
                        "Of these, those of one client"),
        setting::number("sessions_per_peer", of_few, sessions.sessions_per_peer,
                        "Of these, those of one peer's clients"),
        setting::number("slot_memory_mib", of_mib, sessions.slot_bytes / mib,
                        "Memory in MiB for the slots of sessions and the replies that they keep"),
        setting::number("slot_memory_mib_per_peer", of_mib, sessions.slot_bytes_per_peer / mib,
                        "Of that, what one peer's clients may have"),
        setting::number("owner_memory_mib", of_mib, sessions.owner_memory / mib,
                        "Memory in MiB for the owners of opens and locks of version 4.0 and what they were "
                        "answered last"),
        setting::number("owner_memory_mib_per_peer", of_mib, sessions.owner_memory_per_peer / mib,
                        "Of that, what one peer's clients may have"),
        setting::number("callback_connections", of_few, sessions.callback_connections,
                        "Connections that verbenad makes at once to call clients of version 4.0"),
        setting::number("callback_connections_per_peer", of_few, sessions.callback_connections_per_peer,
                        "Of these, those to one peer"),
        setting::number("opens", of_state, state.opens, "Opens of version 4, of all clients"),
        setting::number("opens_per_client", of_state, state.opens_per_client, "Opens of one client"),
        setting::number("locks", of_state, state.locks, "Ranges of bytes that clients of version 4 lock"),
        setting::number("locks_per_client", of_state, state.locks_per_client,
                        "Ranges of bytes that one client locks"),
        setting::number("lock_owners", of_state, state.lock_states,
                        "Owners of locks, for each file, of clients of version 4"),
        setting::number("lock_owners_per_client", of_state, state.lock_states_per_client,
                        "Owners of locks, for each file, of one client"),
        setting::number("delegations", {0, of_state.high}, state.delegations,
                        "Delegations that clients of version 4 hold"),
        setting::number("delegations_per_client", {0, of_state.high}, state.delegations_per_client,
                        "Delegations that one client holds"),
        setting::number(
            "layouts", of_few, layouts.layouts,
            "Files of exports with pnfs that clients have layouts of, each client's counted by itself"),
        setting::number("layouts_per_client", of_few, layouts.layouts_of_client, "Those of one client"),
        setting::number("owner_names_mib", of_mib, state.owner_names / mib,
                        "Memory in MiB for the names of owners of opens and locks"),
        setting::number("owner_names_mib_per_client", of_mib, state.owner_names_per_client / mib,
                        "Of that, what one client may have"),
        setting::number("peer_percent", {1, 100}, state.peer_percent,
                        "The part in percent of opens, locks, lock_owners, layouts and owner_names_mib that "
                        "one peer's clients may have together"),
    };
}

limits_config read_limits(const setting_values& values)
{
    limits_config made;
    made.sessions.clients = made.state.clients = values.number("clients");
    made.sessions.clients_per_peer = part_of(values, "clients_per_peer", "clients");
    made.sessions.sessions = values.number("sessions");
    made.sessions.sessions_per_client = part_of(values, "sessions_per_client", "sessions");
    made.sessions.sessions_per_peer = part_of(values, "sessions_per_peer", "sessions");
    made.sessions.slot_bytes = values.number("slot_memory_mib") * mib;
    made.sessions.slot_bytes_per_peer = part_of(values, "slot_memory_mib_per_peer", "slot_memory_mib") * mib;
    made.sessions.owner_memory = values.number("owner_memory_mib") * mib;
    made.sessions.owner_memory_per_peer =
        part_of(values, "owner_memory_mib_per_peer", "owner_memory_mib") * mib;
    made.sessions.callback_connections = values.number("callback_connections");
    made.sessions.callback_connections_per_peer =
        part_of(values, "callback_connections_per_peer", "callback_connections");
    made.state.opens = values.number("opens");
    made.state.opens_per_client = part_of(values, "opens_per_client", "opens");
    made.state.locks = values.number("locks");
    made.state.locks_per_client = part_of(values, "locks_per_client", "locks");
    made.state.lock_states = values.number("lock_owners");
    made.state.lock_states_per_client = part_of(values, "lock_owners_per_client", "lock_owners");
    made.state.delegations = values.number("delegations");
    made.state.delegations_per_client = part_of(values, "delegations_per_client", "delegations");
    made.layouts.layouts = values.number("layouts");
    made.layouts.layouts_of_client = part_of(values, "layouts_per_client", "layouts");
    made.state.owner_names = values.number("owner_names_mib") * mib;
    made.state.owner_names_per_client =
        part_of(values, "owner_names_mib_per_client", "owner_names_mib") * mib;
    made.state.peer_percent = static_cast<unsigned>(values.number("peer_percent"));
    return made;
}

} // namespace verbena::nfs
