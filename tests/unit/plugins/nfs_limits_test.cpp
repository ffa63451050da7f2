// SPDX-License-Identifier: Apache-2.0
// The settings of how much clients of version 4 may have, and the limits that they are.
#include "../../../plugins/nfs/limits_config.hpp"

#include <boost/test/unit_test.hpp>

#include <set>
#include <string>

BOOST_AUTO_TEST_SUITE(nfs_limits_test)

using namespace verbena;
using namespace verbena::nfs;

namespace {

limits_config limits_of(setting_values values)
{
    check(limit_settings(), values, "nfs.limits.");
    return read_limits(values);
}
setting_values one(const std::string& name, std::int64_t number)
{
    setting_values values;
    values.set(name, {number});
    return values;
}
// In the order of the settings.
std::vector<std::size_t> all_of(const limits_config& c)
{
    constexpr std::size_t mib = std::size_t(1) << 20;
    return {c.state.clients,
            c.sessions.clients_per_peer,
            c.sessions.sessions,
            c.sessions.sessions_per_client,
            c.sessions.sessions_per_peer,
            c.sessions.slot_bytes / mib,
            c.sessions.slot_bytes_per_peer / mib,
            c.sessions.owner_memory / mib,
            c.sessions.owner_memory_per_peer / mib,
            c.sessions.callback_connections,
            c.sessions.callback_connections_per_peer,
            c.state.opens,
            c.state.opens_per_client,
            c.state.locks,
            c.state.locks_per_client,
            c.state.lock_states,
            c.state.lock_states_per_client,
            c.state.delegations,
            c.state.delegations_per_client,
            c.layouts.layouts,
            c.layouts.layouts_of_client,
            c.state.owner_names / mib,
            c.state.owner_names_per_client / mib,
            c.state.peer_percent};
}

} // namespace

BOOST_AUTO_TEST_CASE(without_a_word_of_it_limits_are_those_of_the_layers)
{
    const limits_config read = limits_of({});
    BOOST_TEST(all_of(read) == all_of(limits_config()), boost::test_tools::per_element());
    BOOST_TEST(read.sessions.clients == read.state.clients);
}

BOOST_AUTO_TEST_CASE(each_setting_is_its_own_limit)
{
    const std::vector<setting> settings = limit_settings();
    const std::vector<std::size_t> standard = all_of(limits_config());
    BOOST_TEST_REQUIRE(settings.size() == standard.size());
    for (std::size_t i = 0; i < settings.size(); ++i) {
        BOOST_TEST_CONTEXT(settings[i].name)
        {
            std::vector<std::size_t> wanted = standard;
            wanted[i] -= 1;
            BOOST_TEST(settings[i].default_number == standard[i]);
            const limits_config read = limits_of(one(settings[i].name, std::int64_t(wanted[i])));
            BOOST_TEST(all_of(read) == wanted, boost::test_tools::per_element());
            BOOST_TEST(read.sessions.clients == read.state.clients);
        }
    }
}

BOOST_AUTO_TEST_CASE(a_part_is_no_more_than_the_whole)
{
    BOOST_TEST(limits_of(one("opens", 100)).state.opens_per_client == 100u);
    BOOST_TEST(limits_of(one("slot_memory_mib", 32)).sessions.slot_bytes_per_peer == std::size_t(32) << 20);
    BOOST_CHECK_EXCEPTION(
        limits_of(one("locks_per_client", 1'000'001)), config_error, [](const config_error& e) {
            return e.what() ==
                   std::string("nfs.limits.locks_per_client: 1000001 is more than locks, which is "
                               "1000000: raise locks or lower locks_per_client");
        });
}

BOOST_AUTO_TEST_SUITE_END()
