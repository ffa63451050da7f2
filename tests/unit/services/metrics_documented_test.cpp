// SPDX-License-Identifier: Apache-2.0
// docs/reference/metrics.md has a row for each family that the daemon registers, and the row is true.
#include <boost/test/unit_test.hpp>

#include <service/http_server.hpp>
#include <service/rdma_port_metrics.hpp>
#include <service/reloader.hpp>
#include <service/scrape_stats.hpp>
#include <service/shard_server.hpp>

#include <verbena/core/net/refusals.hpp>
#include <verbena/core/reactor/runtime.hpp>
#include <verbena/plugins/modules.hpp>
#include <verbena/plugins/ramblk.hpp>
#include <verbena/protocols/nfs/nsswitch_groups.hpp>
#include <verbena/protocols/nfs/nsswitch_names.hpp>
#include <verbena/protocols/nfs/server/export_room.hpp>
#include <verbena/protocols/nfs/server/export_traffic.hpp>
#include <verbena/protocols/nfs/server/v3/mount.hpp>
#include <verbena/protocols/nfs/server/v3/server.hpp>
#include <verbena/protocols/nfs/server/v4/commons.hpp>
#include <verbena/protocols/nfs/server/v4/server.hpp>
#include <verbena/protocols/rnbd/server.hpp>
#include <verbena/protocols/rpc/typed_program.hpp>
#include <verbena/protocols/rtrs/client.hpp>
#include <verbena/protocols/storage/module.hpp>
#include <verbena/services/metrics.hpp>

#include <fstream>
#include <map>
#include <string>
#include <unistd.h>

BOOST_AUTO_TEST_SUITE(metrics_documented_test)

using namespace verbena;

namespace {

// The rows by name: "| `name` | type | unit | labels | bound | meaning |".
std::map<std::string, std::string> documented()
{
    std::map<std::string, std::string> rows;
    std::ifstream in(VERBENA_SOURCE_ROOT "/docs/reference/metrics.md");
    BOOST_REQUIRE(in.good());
    for (std::string line; std::getline(in, line);) {
        if (line.starts_with("| `"))
            rows.emplace(line.substr(3, line.find('`', 3) - 3), line);
    }
    return rows;
}

std::string row_of(const metric_family& f)
{
    std::string labels;
    for (const std::string& label : f.labels)
        labels += (labels.empty() ? "" : ", ") + label;
    const auto cell = [](const std::string& text) { return text.empty() ? std::string("-") : text; };
    return "| `" + f.name + "` | " + std::string(to_string(f.type)) + " | " + cell(f.unit) + " | " +
           cell(labels) + " | " + std::to_string(f.bound) + " | " + f.help + " |";
}

} // namespace

struct typed final : rpc::typed_program {
    typed() : typed_program({"typed", 0x20000001, 1}) {}
};

// What verbenad registers, and what any program does.
std::vector<metric_family> all_families()
{
    metric_registry registry;
    auto process = metrics::expose_process(registry);
    const services::scrape_stats scrapes;
    append(process, services::expose(registry, scrapes));
    const services::http_refusals refusals;
    append(process, services::expose(registry, refusals));
    const services::reloader reloads{services::reloader::terms()};
    append(process, reloads.expose(registry));
    auto rt = runtime::start();
    BOOST_REQUIRE(rt.has_value());
    (*rt)->expose(registry);
    const rpc::duplicate_request_cache duplicates(1);
    auto service = services::expose_server(registry, {}, duplicates);
    auto r = reactor::create().value();
    const rpc::service_dispatcher dispatcher(*r);
    append(service, rpc::expose(registry, dispatcher));
    const typed structs;
    append(service, structs.expose(registry));
    append(service, expose_refusals(registry));
    const rpc::stream_stats streams;
    append(service, rpc::expose(registry, streams));
    const iwarp::stats iwarp;
    append(service, iwarp::expose(registry, iwarp));
    const rpcrdma::responder_stats responder;
    append(service, rpcrdma::expose(registry, responder));
    const stream::listener_stats listener;
    append(service, stream::expose(registry, listener));
#ifdef VERBENA_HAS_RDMA
    const rdma::stats devices;
    append(service, rdma::expose(registry, devices));
#endif
    const rtrs::server_stats sessions;
    append(service, rtrs::expose(registry, sessions));
    const rtrs::client_stats client;
    append(service, rtrs::expose(registry, client));
    const rnbd::server_stats operations;
    append(service, rnbd::expose(registry, operations));
    const rnbd::device_table devices_served;
    append(service, rnbd::expose(registry, devices_served));
    auto ports = services::expose_rdma_ports(registry, {});
    const nfs::export_table exports;
    nfs::mount3::mount_list mounts;
    const nfs::v3::server program(exports, {});
    const nfs::mount3::server mount(exports, {}, mounts);
    auto files = program.expose(registry);
    const nfs::export_traffic traffic(1);
    auto of_export = nfs::expose(registry, traffic, "/a");
    const nfs::export_room room;
    append(of_export, nfs::expose(registry, room, "/a"));
    memory_budget budget(1 << 20);
    buffer_pool buffers(budget, r.get());
    scope tasks(*r);
    shard home(0, *r, buffers, tasks);
    files::no_recovery_store store;
    nfs::v4::server_commons commons(exports, {}, std::array{&home}, store, {}, 0);
    blocking_pool lookups(1);
    nfs::v4::nsswitch_names nsswitch(lookups);
    nfs::v4::user_names users(tasks, nsswitch);
    commons.users = &users;
    nfs::nsswitch_groups group_source(lookups);
    const nfs::user_groups groups(home, group_source);
    auto of_groups = groups.expose(registry);
    auto state4 = commons.expose(registry);
    const nfs::v4::server program4(commons, home);
    auto files4 = program4.expose(registry);
    blocking_pool lane(1);
    const storage::open_context context{"export /a", "/a", registry, lane};
    module_table table;
    for (const module_descriptor* m : {&modules::memfs, &modules::delay, &modules::error, &modules::limit})
        table.add(*m);
    setting_values with_snapshots;
    with_snapshots.set("snapshots", {true});
    auto& in_memory = *table.find<storage::backend_module>("memfs");
    check(in_memory.settings(), with_snapshots);
    storage::opened_backend backend = in_memory.open(with_snapshots, context);
    for (const char* name : {"delay", "error", "limit"}) {
        auto& filter = *table.find<storage::filter_module>(name);
        setting_values values;
        check(filter.settings(), values);
        filter.put_on(backend, values, context);
    }
    table.add(modules::posixfs);
    setting_values folder;
    folder.set("directory", {std::string("/dev/shm")});
    folder.set("leases", {false});
    auto& folders = *table.find<storage::backend_module>("posixfs");
    check(folders.settings(), folder);
    const storage::opened_backend exported = folders.open(folder, context);
    storage::opened_block device;
    device.device = std::move(*ramblk::open_ramblk({}));
    const storage::open_block_context on_device{"device a", "a", registry, lane};
    for (const char* name : {"delay", "error", "limit"}) {
        storage::block_filter& filter = *table.find<storage::filter_module>(name)->for_blocks();
        setting_values values;
        check(filter.settings(), values);
        filter.put_on(device, values, on_device);
    }
    auto mounted = mount.expose(registry);
    table.add(modules::fileblk);
    auto& blocks = *table.find<storage::block_module>("fileblk");
    setting_values disk;
    disk.set("path", {std::string("/dev/shm/verbena-test-") + std::to_string(::getpid())});
    disk.set("size", {std::string("4096")});
    check(blocks.settings(), disk);
    const storage::opened_block on_disk = blocks.open(disk, {"device a", "a", registry, lane});
    ::unlink(disk.text("path").c_str());
    return registry.families();
}

BOOST_AUTO_TEST_CASE(every_family_is_documented_as_it_is)
{
    const auto rows = documented();
    const auto families = all_families();
    BOOST_TEST(families.size() > 40U);
    for (const metric_family& f : families) {
        const auto row = rows.find(f.name);
        BOOST_TEST_CONTEXT("the row should be\n" << row_of(f))
        {
            BOOST_TEST((row != rows.end() && row->second == row_of(f)));
        }
    }
}

BOOST_AUTO_TEST_CASE(names_follow_the_rules)
{
    for (const metric_family& f : all_families()) {
        BOOST_TEST_CONTEXT(f.name)
        {
            BOOST_TEST((f.name.starts_with("verbena_") || f.name.starts_with("process_")));
            BOOST_TEST((f.type == metric_type::counter) == f.name.ends_with("_total"));
            BOOST_TEST(!f.help.empty());
            BOOST_TEST(f.bound >= 1U);
            BOOST_TEST((f.bound == 1 || !f.labels.empty()));
            if (f.unit == "seconds" || f.unit == "bytes")
                BOOST_TEST(f.name.find("_" + f.unit) != std::string::npos);
        }
    }
}

BOOST_AUTO_TEST_SUITE_END()
