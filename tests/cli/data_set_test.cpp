// Data sets on the command line: named without an option, recognised by their files, refused with the file at
// fault.
#include "convnet/base/file.h"
#include "convnet/checkpoint/checkpoint.h"
#include "providers/pickle_write.h"
#include "tests/catch.h"
#include "tests/cli/small_net.h"

namespace convnet {
namespace {

TEST_CASE("a run that is saved among its data goes on by the same line") {
  const Workshop shop;
  shop.write_data();
  const Args among = Args{"train", shop.data_path()} + shop.net() +
                     Args{"--mini", "16", "--save-file", shop.data_path(), "--epochs"};
  run_well(among + Args{"1"});
  run_well(among + Args{"2"});
  CHECK(read_checkpoint(shop.data_path()).state.position.epoch >= 2);
}

TEST_CASE("a data set may be named without an option") {
  const Workshop shop;
  shop.write_data();
  const Args train = shop.net() + Args{"--mini", "16", "--epochs", "1", "--save-file"};
  const Outcome named = run_well(Args{"train"} + train + Args{shop / "a", shop.data_path()});
  CHECK(named.err == shop.data_path() + " is read as the data set: --data-provider mnist --data-path " +
                         shop.data_path() + "\n");
  const Outcome given =
      run_well(train + Args{shop / "b", "--data-provider", "mnist", "--data-path", shop.data_path()});
  CHECK(count(named.out, "\n") == count(given.out, "\n"));
  const std::string spaced = shop / "my data";
  std::filesystem::create_directory_symlink(shop.data_path(), spaced);
  CHECK(run_well(Args{"train"} + train + Args{shop / "c", spaced}).err ==
        "'" + spaced + "' is read as the data set: --data-provider mnist --data-path '" + spaced + "'\n");
  CHECK(read_checkpoint(shop / "a").options.at("data-path") == shop.data_path());
  // A checkpoint has its provider.
  const Outcome tested = run_well({"train", shop.data_path(), "--load-file", shop / "a", "--test-only", "1"});
  CHECK_THAT(tested.err, Catch::StartsWith(shop.data_path() + " is read as the data set: --data-path " +
                                           shop.data_path() + "\n"));
  run_well({"plan", shop.data_path(), "--load-file", shop / "a"});
  run_well({"train", spaced, "--load-file", shop / "a", "--epochs", "2"});
  CHECK(read_checkpoint(shop / "a").options.at("data-path") == spaced);
  // Between options, behind a flag, and with a provider; for the commands that take such a command line, too.
  run_well(Args{"--shuffle", shop.data_path(), "--data-provider", "mnist"} + train + Args{shop / "c"});
  CHECK_THAT(run_well(Args{"plan", shop.data_path()} + shop.net()).out, Catch::Contains("parameters; "));
  check_refused(Args{"train", shop.data_path(), "--data-path", "other"} + train + Args{shop / "d"},
                "unexpected argument '" + shop.data_path() + "'; a data set is given with --data-path " +
                    shop.data_path());
  // Beside a misspelt option or a second word, the first data set is where it belongs.
  for (const Args& more : std::vector<Args>{{"-e"}, {"-e", "3"}, {"--epoch-s"}})
    CHECK(run_program(Args{"train", shop.data_path()} + more)
              .err.starts_with("unknown option '" + more[0] + "'"));
  CHECK(run_program({"train", shop.data_path(), "lost"})
            .err.starts_with("unexpected argument 'lost'; there is no such file or folder"));
  check_refused({shop.data_path()},
                "unknown command '" + shop.data_path() + "'; to train on a data set, type: convnet train ");
  // Other words are called what they look like.
  check_refused(Args{"train", shop / "a"} + train + Args{shop / "d"},
                "unexpected argument '" + (shop / "a") + "'; --load-file " + (shop / "a") +
                    " goes on from its checkpoint, --init-from " + (shop / "a") +
                    " starts a new run from its weights");
  check_refused(
      Args{"train", shop.definition_path()} + shop.dummy(),
      "'; --layer-def names the file of the layers, --layer-params that of their learning parameters");
  write_file(shop / "photos.tar.gz", "\x1f\x8b\x08");
  check_refused(
      Args{"train", shop / "photos.tar.gz"} + train + Args{shop / "d"},
      "photos.tar.gz'; it is compressed by gzip, not a folder or a tar of photos; unpack it with gunzip\n");
  // Folders that no provider knows are explained by the provider of images.
  std::filesystem::create_directory(shop / "flat");
  write_file(shop / "flat/photo.jpg", "");
  check_refused(Args{"train", shop / "flat"} + train + Args{shop / "d"},
                "photos belong in a folder for each class, or --labels names a table of their classes");
}

TEST_CASE("a folder whose files have mistakes is read by the provider that they are for") {
  const Workshop shop, arrays;
  const Args net = shop.net() + Args{"--mini", "16", "--epochs", "1", "--save-file", shop / "run"};
  shop.write_data();
  const std::string labels = shop.data_path() + "/t10k-labels-idx1-ubyte";
  write_file(labels, read_whole_file(labels).substr(0, 12));
  check_refused(Args{"train", shop.data_path()} + net, labels + ": ");
  std::filesystem::remove(labels);
  check_refused(Args{"train", shop.data_path()} + net, "missing, plain or .gz: t10k-labels-idx1-ubyte");

  arrays.write_arrays();
  const std::string wrong = npy_file("|i1", "2100,", std::string(2100, '\xFF'));
  write_file(arrays.data_path() + "/labels.npy", wrong);
  check_refused(Args{"train", arrays.data_path()} + net,
                "/labels.npy: record 0 (counted from 0) is label -1");
  std::filesystem::create_directory(arrays / "two");
  std::filesystem::rename(arrays.data_path(), arrays / "two/train");
  check_refused(Args{"train", arrays / "two"} + net, "/labels.npy: record 0 (counted from 0) is label -1");
  // Both kinds in one folder.
  shop.write_data();
  write_file(shop.data_path() + "/images.npy", "");
  CHECK(run_program(Args{"plan", shop.data_path()} + net).code == 0);
}

TEST_CASE("batches of cuda-convnet2 are read as what they hold") {
  using namespace pickles;
  const Workshop shop;
  const Args plan = Args{"plan", shop / "batches"} + shop.net();
  std::filesystem::create_directory(shop / "batches");
  const auto write = [&](const std::string& name, const std::string& contents) {
    write_file(shop / "batches/" + name, pickle_file(contents));
  };
  // These entries of the meta are enough for both.
  const std::vector<std::pair<std::string, std::string>> of_both = {
      {"batch_size", integer(4)}, {"label_names", list({str("a"), str("b")})}, {"num_vis", integer(192)}};
  write("batches.meta", dict(of_both));
  const std::string array_of_bytes = array({192, 4}, "u1", std::string(768, 'x'));
  for (const char* const name : {"data_batch_1", "data_batch_2"})
    write(name, dict({{"data", array_of_bytes}, {"labels", integers({0, 1, 0, 1})}}));
  const auto error = [&] { return run_program(plan).err; };
  CHECK_THAT(error(), Catch::Contains("--data-provider cifar "));
  // A mistake in the meta.
  write("batches.meta", dict({of_both[0], of_both[1]}));
  CHECK_THAT(error(), Catch::Contains("--data-provider cifar ") && Catch::Contains("'num_vis'"));
  write("batches.meta", dict(of_both));
  for (const char* const name : {"data_batch_1", "data_batch_2"})
    write(name, dict({{"data", list({str("jpeg"), str("jpeg")})}, {"labels", integers({0, 1})}}));
  CHECK_THAT(error(), Catch::Contains("--data-provider image "));
}

TEST_CASE("images whose channels seem to come last get a warning") {
  const Workshop shop;
  const auto warning_of = [&](const std::string& shape) {
    std::filesystem::create_directory(shop.data_path());
    constexpr int kBytes = 2100 * 8 * 12 * 3;
    write_file(shop.data_path() + "/images.npy", npy_file("|u1", "2100, " + shape, std::string(kBytes, 'x')));
    write_file(shop.data_path() + "/labels.npy",
               npy_file("|u1", "2100,", std::string(1050, '\0') + std::string(1050, '\1')));
    shop.write(
        "[data]\ntype=data\ndataIdx=0\n[labels]\ntype=data\ndataIdx=1\n[fc2]\ntype=fc\ninputs=data\noutputs="
        "2\n"
        "[probs]\ntype=softmax\ninputs=fc2\n[logprob]\ntype=cost.logreg\ninputs=labels,probs\n",
        "[fc2]\nepsW=0.01\nepsB=0.01\nmomW=0.9\nmomB=0.9\n[logprob]\ncoeff=1\n");
    return run_well(Args{"plan", shop.data_path()} + shop.net()).err;
  };
  const std::string last =
      "warning: the images of images.npy are read as 8 channels of 12x3 pixels, because its shape is taken "
      "for "
      "(N,C,H,W); if it is (N,H,W,C), save a.transpose(0, 3, 1, 2)\n";
  CHECK_THAT(warning_of("8, 12, 3"), Catch::EndsWith(last));
  const Outcome run = run_well(Args{"train", shop.data_path()} + shop.net() +
                               Args{"--epochs", "1", "--save-file", shop / "run"});
  CHECK_THAT(run.err, Catch::EndsWith(last));
  CHECK_THAT(warning_of("3, 8, 12"), !Catch::Contains("warning"));
  // Maps of features.
  CHECK_THAT(warning_of("32, 3, 3"), !Catch::Contains("warning"));
}

TEST_CASE("a data set that is not whole is refused with the file at fault") {
  const Workshop shop;
  const std::string set = shop.write_data();
  const std::string images = set + "/train-images-idx3-ubyte";
  const std::string labels = set + "/train-labels-idx1-ubyte";
  const std::string good_images = read_file(images);
  const std::string good_labels = read_file(labels);
  const Args train = shop.mnist() + Args{"--save-file", shop / "out", "--epochs", "1"};
  const auto check_file = [&](const std::string& file, const std::string& bytes, const std::string& message) {
    write_file(file, bytes);
    check_refused(train, message);
    write_file(images, good_images);
    write_file(labels, good_labels);
  };
  check_file(images, good_images.substr(0, 1000), images + ": truncated in record 15 (counted from 0)");
  check_file(images, good_images.substr(0, 10),
             images + ": truncated: it has 10 bytes, an IDX header has 16");
  check_file(images, "", images + ": truncated: it has 0 bytes");
  check_file(images, good_images + "x", images + ": too long");
  check_file(images, good_labels, images + ": the magic number is 0x00000801");
  check_file(images, "\x1f\x8b\x08" + good_images, images + ": corrupt gzip data");
  check_file(labels, replaced(good_labels, std::string(1, '\x07'), "\x4d"),
             labels + ": record 1 (counted from 0) is label 77; labels are 0 to 61");
  check_file(labels, idx_file({39}, std::string(39, '\0')),
             images + " holds 40 images, but " + labels + " holds 39 labels");

  check_refused(train + Args{"--train-range", "3"}, "--train-range 3: batch 3 is not in " + set +
                                                        "; its batch numbers: 1-2 (training 1, test 2)");
  check_refused(train + Args{"--data-path", shop / "none"},
                "--data-path " + (shop / "none") + ": no such folder");
  check_refused(shop.net() + Args{"--data-provider", "mnist", "--train-range", "1", "--test-range", "2"} +
                    Args{"--save-file", shop / "out"},
                "data provider 'mnist' needs --data-path");
  std::filesystem::remove(labels);
  check_refused(train, set + ": missing, plain or .gz: train-labels-idx1-ubyte (or train-labels.idx1-ubyte)");
  CHECK_FALSE(std::filesystem::exists(shop / "out"));
}

}  // namespace
}  // namespace convnet
