// SPDX-License-Identifier: Apache-2.0
// Peers that an RDMA listener rejects before any shard has them are among the connections that were refused.
#include <boost/test/unit_test.hpp>

#include <verbena/transports/rdma.hpp>

#include <map>
#include <string>

BOOST_AUTO_TEST_SUITE(rdma_acceptor_metrics_test)

using namespace verbena;

BOOST_AUTO_TEST_CASE(rejects_of_all_listeners_stand_in_the_family_of_ends)
{
    metric_registry registry;
    const rdma::stats shard;
    const auto of_shard = rdma::expose(registry, shard);
    rdma::stats first;
    rdma::stats second;
    const auto of_first = rdma::expose_ends(registry, first);
    const auto of_second = rdma::expose_ends(registry, second);
    const auto ends = [&registry] {
        std::map<std::string, double> all;
        for (const metric_snapshot& m : registry.collect()) {
            if (m.family.name != "verbena_connection_ends_total")
                continue;
            for (const auto& s : m.samples)
                all[s.labels.at(0) + " " + s.labels.at(1)] = s.value;
        }
        return all;
    };
    BOOST_TEST(ends().at("rdma other_device") == 0);
    first.ends[std::size_t(rdma::end_cause::other_device)] = 3;
    second.ends[std::size_t(rdma::end_cause::other_device)] = 4;
    second.ends[std::size_t(rdma::end_cause::waiting_crowded)] = 1;
    BOOST_TEST(ends().at("rdma other_device") == 7);
    BOOST_TEST(ends().at("rdma waiting_crowded") == 1);
    BOOST_TEST(ends().size() == std::size_t(rdma::end_cause::count_));
    BOOST_TEST(!ends().contains("other other"));
}

BOOST_AUTO_TEST_SUITE_END()
