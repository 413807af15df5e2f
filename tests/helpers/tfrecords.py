"""TFRecords as the official program writes them, by Google's own implementation of `Example`."""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from tensorboard.summary.writer.record_writer import RecordWriter

# the message `Example`, as TensorFlow defines it
EXAMPLE = """name: "example.proto" package: "t" syntax: "proto3"
message_type { name: "Bytes"
  field { name: "value" number: 1 type: TYPE_BYTES label: LABEL_REPEATED } }
message_type { name: "Ints"
  field { name: "value" number: 1 type: TYPE_INT64 label: LABEL_REPEATED } }
message_type { name: "Feature"
  field { name: "bytes_list" number: 1 type: TYPE_MESSAGE type_name: ".t.Bytes" }
  field { name: "int64_list" number: 3 type: TYPE_MESSAGE type_name: ".t.Ints" } }
message_type { name: "Features"
  field { name: "feature" number: 1 type: TYPE_MESSAGE label: LABEL_REPEATED
    type_name: ".t.Features.FeatureEntry" }
  nested_type { name: "FeatureEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_MESSAGE label: LABEL_OPTIONAL
      type_name: ".t.Feature" } } }
message_type { name: "Example"
  field { name: "features" number: 1 type: TYPE_MESSAGE type_name: ".t.Features" } }
"""
POOL = descriptor_pool.DescriptorPool()
POOL.Add(text_format.Parse(EXAMPLE, descriptor_pb2.FileDescriptorProto()))


def record(image):
    """An image (C, H, W) as one record."""
    made = message_factory.GetMessageClass(POOL.FindMessageTypeByName("t.Example"))()
    made.features.feature["shape"].int64_list.value.extend(image.shape)
    made.features.feature["data"].bytes_list.value.append(image.tobytes())
    return made.SerializeToString()


def write_records(path, records):
    with open(path, "wb") as file:
        writer = RecordWriter(file)
        for one in records:
            writer.write(one)
