// SPDX-License-Identifier: Apache-2.0
// Clients that want the same few files, that fall silent, ignore recalls and begin anew, on a server that stops at any moment and has a store that
// fails; and a naive model of who has what, which must agree after each step: lists of opens, a lock for each byte. No two states
// that contradict each other are ever granted, no waiter is forgotten, and at the end everything is home.
#define BOOST_TEST_MODULE sim_files
#include <boost/test/unit_test.hpp>

#include "files_world.hpp"
#include "seeds.hpp"

#include <cstdio>

using namespace verbena::sim;

BOOST_AUTO_TEST_CASE(fixed_ones)
{
    const std::uint64_t only = only_seed();
    told all;
    for (std::uint64_t seed = only != 0 ? only : 1; seed <= (only != 0 ? only : 350); ++seed) {
        BOOST_TEST_CONTEXT("VERBENA_SIM_SEED=" << seed) { files_world(seed, all).run(500); }
    }
    // What it is about did happen.
    std::printf(
        "opens %llu, shares denied %llu, needed room %llu, made %llu, busy %llu, downgrades %llu\n"
        "locks %llu, denied %llu, told %llu, lapsed %llu, limits %llu\n"
        "delegations %llu, recalls %llu, revocations %llu, operations %llu\n"
        "expired %llu, returned %llu, restarts %llu, reclaims %llu, refused %llu, grace %llu, store failures "
        "%llu, unheard %llu, on the disk %llu, leases kept %llu\n"
        "leases on files %llu, refused %llu, wanted locally %llu, bytes of two opens %llu, opens not written "
        "down %llu, I/O "
        "in grace %llu, delegations of distrusted clients %llu, opens before what they deny was over %llu\n"
        "hosts: locks %llu, restarts %llu, late notices %llu, reclaims %llu, silent %llu\n",
        (unsigned long long)all.opens, (unsigned long long)all.denied_shares,
        (unsigned long long)all.needed_room, (unsigned long long)all.made_room, (unsigned long long)all.busy,
        (unsigned long long)all.downgrades, (unsigned long long)all.locks,
        (unsigned long long)all.denied_locks, (unsigned long long)all.waits_told,
        (unsigned long long)all.lapsed, (unsigned long long)all.limits, (unsigned long long)all.delegations,
        (unsigned long long)all.recalls, (unsigned long long)all.revocations, (unsigned long long)all.io,
        (unsigned long long)all.expired, (unsigned long long)all.returned, (unsigned long long)all.restarts,
        (unsigned long long)all.reclaims, (unsigned long long)all.refused_reclaims,
        (unsigned long long)all.refused_grace, (unsigned long long)all.store_failures,
        (unsigned long long)all.unheard, (unsigned long long)all.on_disk, (unsigned long long)all.outlived,
        (unsigned long long)all.leases, (unsigned long long)all.refused_leases, (unsigned long long)all.local,
        (unsigned long long)all.of_two_opens, (unsigned long long)all.unwritten,
        (unsigned long long)all.io_in_grace, (unsigned long long)all.distrusted,
        (unsigned long long)all.not_over, (unsigned long long)all.host_locks,
        (unsigned long long)all.host_restarts, (unsigned long long)all.late_notices,
        (unsigned long long)all.host_reclaims, (unsigned long long)all.silent_hosts);
    BOOST_TEST(
        (only != 0 ||
         (all.opens > 5000 && all.denied_shares > 1000 && all.made_room > 300 && all.busy > 300 &&
          all.downgrades > 100 && all.locks > 2000 && all.denied_locks > 500 && all.waits_told > 50 &&
          all.lapsed > 100 && all.limits > 50 && all.delegations > 500 && all.recalls > 300 &&
          all.revocations > 200 && all.expired > 100 && all.returned > 100 && all.restarts > 200 &&
          all.reclaims > 800 && all.refused_reclaims > 80 && all.store_failures > 50 && all.unheard > 10 &&
          all.on_disk > 100 && all.outlived > 100 && all.leases > 100 && all.refused_leases > 30 &&
          all.local > 100 && all.of_two_opens > 20 && all.unwritten > 50 && all.io_in_grace > 50 &&
          all.distrusted > 20 && all.not_over > 5 && all.host_locks > 500 && all.host_restarts > 100 &&
          all.late_notices > 100 && all.host_reclaims > 20 && all.silent_hosts > 100)));
}

BOOST_AUTO_TEST_CASE(fresh_ones)
{
    const std::uint64_t done = fresh_seeds([](std::uint64_t seed) {
        told t;
        BOOST_TEST_CONTEXT("VERBENA_SIM_SEED=" << seed) { files_world(seed, t).run(500); }
    });
    BOOST_TEST(done > 0u);
}
