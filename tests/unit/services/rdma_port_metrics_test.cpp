// SPDX-License-Identifier: Apache-2.0
// The counters of RDMA devices, in a folder of files as the kernel has them.
#include <boost/test/unit_test.hpp>

#include <service/rdma_port_metrics.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

BOOST_AUTO_TEST_SUITE(rdma_port_metrics_test)

using namespace verbena;

namespace {

class devices {
public:
    devices()
    {
        char name[] = "/tmp/verbena-rdma-ports-XXXXXX";
        BOOST_REQUIRE(::mkdtemp(name) != nullptr);
        root_ = name;
    }
    ~devices() { std::filesystem::remove_all(root_); }

    std::filesystem::path counters(const std::string& device, const std::string& port) const
    {
        return std::filesystem::path(root_) / device / "ports" / port / "hw_counters";
    }
    void counter(const std::string& device, const std::string& port, const std::string& name,
                 const std::string& text) const
    {
        std::filesystem::create_directories(counters(device, port));
        std::ofstream(counters(device, port) / name, std::ios::binary) << text;
    }
    /// By labels, as "DEVICE PORT COUNTER".
    std::map<std::string, double> scrape(std::vector<device_choice> of = {{}}) const
    {
        metric_registry registry;
        const auto kept = services::expose_rdma_ports(registry, std::move(of), root_);
        const auto families = registry.collect();
        BOOST_REQUIRE(families.size() == 1U);
        std::map<std::string, double> all;
        for (const auto& s : families[0].samples)
            all[s.labels.at(0) + " " + s.labels.at(1) + " " + s.labels.at(2)] = s.value;
        return all;
    }
    const std::string& root() const { return root_; }

private:
    std::string root_;
};

} // namespace

BOOST_AUTO_TEST_CASE(what_each_port_counts_of_receives_that_were_missing)
{
    const devices d;
    d.counter("rxe0", "1", "send_rnr_err", "3\n");
    d.counter("rxe0", "1", "rcvd_rnr_err", "0\n");
    d.counter("rxe0", "1", "retry_rnr_exceeded_err", "1\n");
    d.counter("rxe0", "1", "sent_pkts", "900\n"); // not of receives
    d.counter("mlx5_0", "2", "out_of_buffer", "7\n");
    std::filesystem::create_directories(d.counters("siw0", "1")); // counts none of them
    const std::map<std::string, double> expected = {{"mlx5_0 2 out_of_buffer", 7},
                                                    {"rxe0 1 rcvd_rnr_err", 0},
                                                    {"rxe0 1 retry_rnr_exceeded_err", 1},
                                                    {"rxe0 1 send_rnr_err", 3}};
    BOOST_TEST((d.scrape() == expected));
}

BOOST_AUTO_TEST_CASE(each_scrape_reads_anew)
{
    const devices d;
    metric_registry registry;
    const auto kept = services::expose_rdma_ports(registry, {{}}, d.root());
    BOOST_TEST(registry.collect().at(0).samples.empty());
    d.counter("rxe0", "1", "send_rnr_err", "3\n");
    BOOST_TEST(registry.collect().at(0).samples.at(0).value == 3);
    d.counter("rxe0", "1", "send_rnr_err", "4\n");
    BOOST_TEST(registry.collect().at(0).samples.at(0).value == 4);
    std::filesystem::remove_all(d.root() + "/rxe0");
    BOOST_TEST(registry.collect().at(0).samples.empty());
}

BOOST_AUTO_TEST_CASE(what_is_no_number_has_no_sample)
{
    const devices d;
    for (const char* text : {
             "", "\n", "-1\n", "+1\n", " 1\n", "1 \n", "1\n\n", "1 2\n", "0x1\n", "many\n", "1e3\n",
             "18446744073709551616\n",                      // 2^64
             "000000000000000000000000000000000000000001\n" // longer than any number of theirs
         }) {
        BOOST_TEST_CONTEXT('"' << text << '"')
        {
            d.counter("rxe0", "1", "send_rnr_err", text);
            BOOST_TEST(d.scrape().empty());
        }
    }
    d.counter("rxe0", "1", "send_rnr_err", std::string(100000, '7'));
    BOOST_TEST(d.scrape().empty());
    d.counter("rxe0", "1", "send_rnr_err", std::string("1\0\n", 3));
    BOOST_TEST(d.scrape().empty());
    d.counter("rxe0", "1", "send_rnr_err", "18446744073709551615\n");
    BOOST_TEST(d.scrape().at("rxe0 1 send_rnr_err") == 18446744073709551615.0);
    d.counter("rxe0", "1", "send_rnr_err", "5"); // without the end of a line
    BOOST_TEST(d.scrape().at("rxe0 1 send_rnr_err") == 5);
}

BOOST_AUTO_TEST_CASE(what_is_absent_or_odd_fails_nothing)
{
    const devices d;
    BOOST_TEST(d.scrape().empty()); // no device
    std::ofstream(d.root() + "/version") << "5\n";
    std::filesystem::create_directories(d.root() + "/rxe0");
    std::filesystem::create_directories(d.counters("rxe1", "1") / "send_rnr_err"); // a folder
    d.counter("rxe2", "one", "send_rnr_err", "1\n");
    d.counter("rxe2", "-1", "send_rnr_err", "1\n");
    d.counter("rxe2", "1x", "send_rnr_err", "1\n");
    std::filesystem::create_directories(d.counters("rxe3", "1"));
    std::filesystem::create_symlink("nowhere", d.counters("rxe3", "1") / "send_rnr_err");
    std::filesystem::create_symlink("rxe4", d.root() + "/rxe4"); // that leads to itself
    BOOST_TEST(d.scrape().empty());
    metric_registry registry;
    const auto kept = services::expose_rdma_ports(registry, {{}}, d.root() + "/absent");
    BOOST_TEST(registry.collect().at(0).samples.empty());
}

BOOST_AUTO_TEST_CASE(devices_and_ports_of_the_listeners_only)
{
    const devices d;
    for (const char* device : {"mlx5_0", "mlx5_1"}) {
        for (const char* port : {"1", "2"})
            d.counter(device, port, "out_of_buffer", "1\n");
    }
    BOOST_TEST(d.scrape({}).empty());
    BOOST_TEST(d.scrape({{"mlx5_2", 0}}).empty());
    BOOST_TEST(d.scrape({{"mlx5_1", 0}}).size() == 2U);
    BOOST_TEST(d.scrape({{"mlx5_1", 0}}).contains("mlx5_1 2 out_of_buffer"));
    const auto two = d.scrape({{"mlx5_1", 2}, {"mlx5_0", 1}});
    BOOST_TEST(two.size() == 2U);
    BOOST_TEST(two.contains("mlx5_1 2 out_of_buffer"));
    BOOST_TEST(two.contains("mlx5_0 1 out_of_buffer"));
    BOOST_TEST(d.scrape({{"mlx5_1", 2}, {}}).size() == 4U);
}

BOOST_AUTO_TEST_CASE(a_host_of_many_devices_has_a_bounded_number_of_series)
{
    const devices d;
    for (int i = 100; i < 200; ++i)
        d.counter("mlx5_" + std::to_string(i), "1", "out_of_buffer", "2\n");
    const auto all = d.scrape();
    BOOST_TEST(all.size() == 65U);
    BOOST_TEST(all.at("mlx5_100 1 out_of_buffer") == 2);
    BOOST_TEST(all.at("mlx5_163 1 out_of_buffer") == 2);
    BOOST_TEST(all.at("other other other") == 72);
}

BOOST_AUTO_TEST_SUITE_END()
