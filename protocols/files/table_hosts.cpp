// SPDX-License-Identifier: Apache-2.0
// Hosts, which have no lease, and what they lock by owners alone, as NLM does.
#include "entries.hpp"

#include <verbena/core/printable.hpp>

#include <chrono>

namespace verbena::files {

using namespace detail;

// --- Hosts

result<client_id> state_table::add_host(std::string_view key, std::uint64_t peer, bool monitored)
{
    const auto made = make_client(key, peer, true);
    if (!made)
        return made.error();
    (*made)->silent = monitored;
    return (*made)->id;
}

result<client_entry*> state_table::living_host(client_id id) noexcept
{
    const auto c = living(id);
    if (c && !(*c)->is_host)
        return error(errc::invalid, "a client with a lease locks by its opens");
    return c;
}

result<bool> state_table::has_restarted(client_id host, std::uint32_t number, host_word says)
{
    client_entry* const c = find_client(host);
    if (c == nullptr)
        return error(errc::stale_client);
    if (!c->is_host)
        return error(errc::invalid, "a client with a lease has no state number");
    if (says == host_word::restarted)
        return number == 0 || number != c->host_number;
    if (number == 0)
        return false;
    if (c->host_number == 0)
        c->host_number = number;
    return number != c->host_number;
}

} // namespace verbena::files
